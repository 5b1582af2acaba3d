"""What is set, and where it is written."""
