"""How fast and how right it is."""
