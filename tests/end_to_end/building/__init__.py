"""How it is built, installed, released and taken apart."""
