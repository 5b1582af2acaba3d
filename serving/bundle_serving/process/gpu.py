"""How a server loses its GPU, by what answers and nvidia-smi say then.

A container can lose it while it runs: `systemctl daemon-reload` closes the devices to it where
NVIDIA's hook gave them, and not CDI (nvidia-container-toolkit, issues 48 and 1227). And a process
can: after a kernel's fault, which the host's log calls an Xid, each further call fails as well.
"""

import subprocess

NVML_LOST = "Failed to initialize NVML: Unknown Error"
LOST = (
    f"the container has lost its GPU ({NVML_LOST}); restart it: make down && make up; "
    "to prevent it, use CDI: docs/gpu.md"
)
# What else nvidia-smi says then: after an update of the host's driver, and where a GPU is off the
# bus (Xid 79).
UNREACHABLE = (
    "Failed to initialize NVML",
    "Unable to determine the device handle for GPU",
    "GPU is lost",
    "No devices were found",
)
# The errors of CUDA (cudaGetErrorString, 12.9) that leave a process "in an inconsistent state": it
# must be "terminated and relaunched". Triton, PyTorch, cupy and TensorRT pass them on.
LASTING = (
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected during the execution",
    "Invalid access of peer GPU memory over nvlink or a hardware error",
    "an illegal memory access was encountered",
    "the launch timed out and was terminated",
    "device-side assert triggered",
    "hardware stack error",
    "an illegal instruction was encountered",
    "misaligned address",
    "operation not supported on global/shared address space",
    "invalid program counter",
    "unspecified launch failure",
    "context is destroyed",
    "driver shutting down",
    "no CUDA-capable device is detected",
    "CUDA-capable device(s) is/are busy or unavailable",
    # Of Triton's TensorRT backend (instance_state.cc), which has not looked at CUDA's own.
    "unable to enqueue for inference",
    "unable to execute graph for inference",
)
# A driver that has not been used for a while starts each GPU first, for seconds.
START_S = 60
# Of one that is in use.
ANSWER_S = 2
# CUDA's, and with it PyTorch's ("CUDA out of memory"); cupy begins a sentence with it.
EXHAUSTED = "out of memory"
# The Python backend's, of a model's own process, which is started anew with the model.
OF_A_MODELS_PROCESS = "Failed to process the request(s) for model"


def has_failed(told: str) -> bool:
    """Whether the server's own process can compute nothing any more."""
    return OF_A_MODELS_PROCESS not in told and any(error in told for error in LASTING)


def is_exhausted(told: str) -> bool:
    return EXHAUSTED in told.lower()


def is_there() -> bool:
    told = _ask(START_S)
    return told is not None and "GPU 0: " in told


def why_lost() -> str | None:
    """Runs inside the container; None also if there is no GPU to lose."""
    if (told := _ask(ANSWER_S)) is None:
        return None
    if NVML_LOST in told:
        return LOST
    if any(words in told for words in UNREACHABLE):
        return f"the GPU cannot be reached ({told.strip().splitlines()[0]})"
    return None


def _ask(limit: float) -> str | None:
    """What nvidia-smi says; None if there is none."""
    command = ["nvidia-smi", "-L"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout + asked.stderr
