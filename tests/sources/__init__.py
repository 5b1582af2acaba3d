"""What is read off the sources."""
