"""Looks for the settings that suit this machine best, by trying them."""
