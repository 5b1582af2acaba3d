"""While it serves."""
