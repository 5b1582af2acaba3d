"""The commands behind make, and the steps that they run."""

import os
import sys

from scripts.base import interrupts

# ONNX Runtime would number this machine in a file in the user's home, and report to Microsoft what
# it is used for.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if sys.argv[:1] == ["-m"]:  # this is a program of ours that starts: python -m scripts.commands
    interrupts.end_at_once()
