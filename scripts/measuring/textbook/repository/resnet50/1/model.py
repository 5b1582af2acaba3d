"""model.onnx by ONNX Runtime: the server of PyPI does not carry Triton's own backend for it."""

from pathlib import Path

import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        folder = Path(args["model_repository"]) / args["model_version"]
        self.session = onnxruntime.InferenceSession(
            folder / "model.onnx", providers=["CPUExecutionProvider"]
        )

    def execute(self, requests):
        responses = []
        for request in requests:
            picture = pb_utils.get_input_tensor_by_name(request, "input").as_numpy()
            (scores,) = self.session.run(["output"], {"input": picture})
            out_tensor = pb_utils.Tensor("output", scores)
            responses.append(pb_utils.InferenceResponse(output_tensors=[out_tensor]))
        return responses
