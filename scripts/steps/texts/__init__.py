"""The text classifier: downloaded or trained, exported, checked."""
