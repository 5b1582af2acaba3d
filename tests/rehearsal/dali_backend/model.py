"""The rehearsal's backend "dali": the real DALI, on the CPU.

Loads and answers as dali_backend does (triton-inference-server/dali_backend, src/dali_model.h and
src/dali_model_instance.cc): the model's file is run by the python3 and with the PYTHONPATH of the
server; requests of different lengths share a batch; what one of them does wrong fails all.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

# The stub is isolated, and ignores the variable.
sys.path[:0] = os.environ["PYTHONPATH"].split(":")

from nvidia.dali import Pipeline  # noqa: E402

from bundle_serving.triton import array, pb, version_folder  # noqa: E402

AUTOSERIALIZE = """
import importlib, sys
from nvidia.dali._utils.autoserialize import invoke_autoserialize
spec = importlib.util.spec_from_file_location('autoserialize_mod', sys.argv[1])
head_module = importlib.util.module_from_spec(spec)
sys.modules['autoserialize_mod'] = head_module
spec.loader.exec_module(head_module)
invoke_autoserialize(head_module, sys.argv[2])
"""


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        (self.input,), (self.output,) = (
            [tensor["name"] for tensor in config[role]] for role in ("input", "output")
        )
        self.most = config["max_batch_size"]
        model = version_folder(args) / config["default_model_filename"]
        with tempfile.NamedTemporaryFile() as target:
            command = ["python3", "-c", AUTOSERIALIZE, str(model), target.name]
            subprocess.run(command, check=True)
            self.serialized = Path(target.name).read_bytes()
        self.threads = int(config["parameters"]["num_threads"]["string_value"])
        self.reset()

    def reset(self):
        """An error leaves a pipeline that is of no use any more."""
        self.pipeline = Pipeline.deserialize(
            self.serialized,
            batch_size=self.most,
            num_threads=self.threads,
            device_id=None,
            exec_pipelined=False,
            prefetch_queue_depth=1,
        )
        self.pipeline.build()

    def execute(self, requests):
        batches = [array(request, self.input) for request in requests]
        files = [file for batch in batches for file in batch]
        try:
            (pictures,) = self.pipeline.run(**{self.input: files})
        except RuntimeError as fault:
            self.reset()
            error = pb.TritonError(f"Runtime error: {fault}", pb.TritonError.UNKNOWN)
            return [pb.InferenceResponse(error=error) for _ in requests]
        ends = np.cumsum([len(batch) for batch in batches])[:-1]
        return [
            pb.InferenceResponse([pb.Tensor(self.output, part)])
            for part in np.split(pictures.as_array(), ends)
        ]
