"""What was built, laid out as Triton reads it; versions and their history."""
