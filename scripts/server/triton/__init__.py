"""What commands ask of Triton itself."""
