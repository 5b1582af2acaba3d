"""The door: listens for requests, checks them, and passes them to Triton over its socket."""
