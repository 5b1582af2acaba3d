"""A network without any download: trained in seconds on drawings of eight things."""
