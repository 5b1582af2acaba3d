"""A container can lose its GPU while it runs: `systemctl daemon-reload` closes the devices to it
where NVIDIA's hook gave them, and not CDI (nvidia-container-toolkit, issues 48 and 1227)."""

from __future__ import annotations

import subprocess

NVML_LOST = "Failed to initialize NVML: Unknown Error"
LOST = (
    f"the container has lost its GPU ({NVML_LOST}); restart it: make down && make up; "
    "to prevent it, use CDI: docs/gpu.md"
)


def why_lost() -> str | None:
    """Runs inside the container; None also if there is no GPU to lose."""
    try:
        asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=2)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return LOST if NVML_LOST in asked.stdout + asked.stderr else None
