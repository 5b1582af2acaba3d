"""Named classifiers."""

# Needs no hub: an encoder from PyPI, and a last layer that is trained during the export.
MINILM = "minilm"
