"""What is measured, tuned, proved and reported."""
