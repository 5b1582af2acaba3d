"""The model repository as Triton reads it; versions and their history."""
