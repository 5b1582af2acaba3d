"""Envoy, which stands before the door: its configuration, its process, what it asks and tells."""
