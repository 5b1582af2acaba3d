"""Code that runs in the server: the pipelines' steps as pure functions, and the glue to Triton."""

import signal
import sys
from pathlib import Path

# The parts of kinds and extensions that run in the server; in an image they lie in this folder.
for home in ("kinds", "extensions"):
    __path__ += sorted(map(str, Path(__file__).parents[2].glob(f"{home}/*/serving")))

NAME = "[A-Za-z][A-Za-z0-9_-]{0,40}"  # what a pipeline of the user's may be called
CACHE = "cache"  # a parameter of requests: false, and no earlier answer will do
# The id of our own requests (own_requests.py), which the door leaves out of what it measures.
CHECK_HEADER = "bundle-check"

# Of a program that starts, Ctrl-C prints no traceback from the middle of an import.
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
