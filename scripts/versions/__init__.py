"""Versions of what is served: made, kept, rolled out with proof, rolled back."""
