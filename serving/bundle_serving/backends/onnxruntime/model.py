"""The backend "onnxruntime" for servers without Triton's own: runs model.onnx with OpenVINO."""

import json

from bundle_serving.openvino_engine import Engine
from bundle_serving.step_reports import remark_scores, reported
from bundle_serving.triton import answer_together, parameter, version_folder


@reported
class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.inputs = [tensor["name"] for tensor in config["input"]]
        self.outputs = [tensor["name"] for tensor in config["output"]]
        folder = version_folder(args)
        # Beside the network, not in the config: two versions may be loaded at once.
        precision = json.loads((folder / "engine.json").read_text())["precision"]
        self.engine = Engine(folder / "model.onnx", precision, int(parameter(args, "threads")))
        self.engine.require(config)

    def execute(self, requests):
        return answer_together(requests, self.inputs, self.outputs, self.compute)

    def compute(self, batch):
        results = self.engine(batch, self.outputs)
        remark_scores(results)
        return results
