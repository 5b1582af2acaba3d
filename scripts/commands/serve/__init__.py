"""To serve, and to ask."""
