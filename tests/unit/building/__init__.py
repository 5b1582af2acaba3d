"""From weights to a version in the repository."""
