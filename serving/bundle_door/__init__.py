"""The door: it listens for requests from outside, checks them, and asks Triton over its socket."""
