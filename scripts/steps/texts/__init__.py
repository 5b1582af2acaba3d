"""The classifier of texts: found or trained, exported, checked."""
