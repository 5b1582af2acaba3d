"""Finds the best settings for this machine by trying them."""
