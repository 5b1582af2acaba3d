"""Answers as `picture` does, but calls what is high low; and ends at a picture that says so."""

import os

import numpy as np
import triton_python_backend_utils as pb_utils

ENDS = b"\xffend"


class TritonPythonModel:
    def execute(self, requests):
        return [answer(request) for request in requests]


def answer(request):
    (file,) = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
    if bytes(file[: len(ENDS)]) == ENDS:
        os._exit(1)
    shares = np.bincount(file // 86, minlength=3)[:3] / len(file)
    if shares.argmax() == 2:
        shares = shares[::-1]
    tensor = pb_utils.Tensor("OUTPUT", np.array([shares], np.float32))
    return pb_utils.InferenceResponse([tensor])
