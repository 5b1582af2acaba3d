"""The pipeline of texts: from a classifier to what the server serves."""
