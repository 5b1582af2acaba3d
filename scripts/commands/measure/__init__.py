"""How fast it is, and how right."""
