"""That the parts of this checkout agree with each other."""
