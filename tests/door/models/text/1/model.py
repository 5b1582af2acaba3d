"""A text comes back in capitals."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [answer(request) for request in requests]


def answer(request):
    texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
    capitals = np.char.upper(texts.astype(bytes)).astype(object)
    return pb_utils.InferenceResponse([pb_utils.Tensor("CAPITALS", capitals)])
