"""The settings: what may be set, and where it was set."""
