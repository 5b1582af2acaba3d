"""The commands behind make, and the steps that they run."""

import os

# ONNX Runtime would number this machine in a file in the user's home, and report to Microsoft what
# it is used for.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
