"""What is written of a measurement."""
