"""The keeper: starts Triton and the door, watches them, and restores what fails."""

import bundle_serving as bundle_serving  # first, since it deals with Ctrl-C
