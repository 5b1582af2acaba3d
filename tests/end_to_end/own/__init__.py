"""Networks of somebody's own."""
