"""The door: listens for requests, checks them, and passes them to Triton over its socket."""

import bundle_serving as bundle_serving  # first, since it deals with Ctrl-C
