"""bundle_door."""
