"""The model `embedding`, of Triton's python backend. Imported by its model.py only."""

import os
import threading
from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb

from bundle_serving.health import IMAGE
from bundle_serving.pictures import Transform
from bundle_serving.process.server_log import log_traceback
from bundle_serving.triton import array, failure, parameter, version_folder

from .embeddings import Embedder, EngineFailed

# After a failure of the engine: until the answers are on the way.
END_S = 0.2


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        folder = version_folder(args)
        how = Transform.load(folder / "transform.json")
        self._embed = Embedder(folder, how, int(parameter(args, "threads")))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        try:
            answers = self._embed([array(each, IMAGE).ravel() for each in requests])
        except Exception as fault:
            log_traceback(fault)
            if is_broken := isinstance(fault, EngineFailed):  # the keeper reloads the model
                threading.Timer(END_S, os._exit, [1]).start()
            return [failure(fault, callers_fault=False, busy=is_broken) for _ in requests]
        return [
            pb.InferenceResponse([pb.Tensor(name, tensor) for name, tensor in answer.items()])
            for answer in answers
        ]
