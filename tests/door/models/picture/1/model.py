"""How many of a file's bytes are low, middling and high; whatever is no JPEG is refused.

A file that begins with WAIT is answered once the file exists whose path follows.
"""

import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

from bundle_serving.step_reports import reported

WAIT = b"\xff\x00wait"


@reported
class TritonPythonModel:
    def initialize(self, args):
        pass

    def execute(self, requests):
        return [answer(request) for request in requests]


def answer(request):
    files = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
    for file in files:
        if len(file) < 3 or file[0] != 0xFF:
            return refusal("not a JPEG; send one")
        if bytes(file[:6]) == WAIT:
            path = Path(bytes(file[6:]).rstrip(b"\0").decode())
            while not path.exists():
                time.sleep(0.02)
    shares = [np.bincount(file // 86, minlength=3)[:3] / len(file) for file in files]
    tensor = pb_utils.Tensor("OUTPUT", np.array(shares, np.float32))
    return pb_utils.InferenceResponse([tensor])


def refusal(why):
    error = pb_utils.TritonError(why, pb_utils.TritonError.INVALID_ARG)
    return pb_utils.InferenceResponse(error=error)
