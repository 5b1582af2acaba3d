"""Switching versions while the server answers, and switching back."""
