"""What runs on the user's machine: settings, the choice of a flavour, and its server."""
