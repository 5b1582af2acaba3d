"""Scores -> probabilities, one request after the other."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "INPUT_0").as_numpy()
            exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
            probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
            out_tensor_0 = pb_utils.Tensor("OUTPUT_0", probabilities.astype(np.float32))
            responses.append(pb_utils.InferenceResponse(output_tensors=[out_tensor_0]))
        return responses
