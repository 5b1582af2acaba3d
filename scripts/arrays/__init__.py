"""The pipeline of arrays: from a Places365 checkpoint to what the server serves."""
