"""A backend's model.py without a server: with a stand-in for what the stub process gives it."""

import importlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Tensor:
    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def as_numpy(self) -> Any:
        return self.value

    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)


class TritonError(Exception):
    INVALID_ARG, INTERNAL, UNAVAILABLE = "INVALID_ARG", "INTERNAL", "UNAVAILABLE"

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def stub(logged: list[str]) -> types.ModuleType:
    """triton_python_backend_utils as far as the backends go."""
    module = types.ModuleType("triton_python_backend_utils")
    pb: Any = module
    pb.Tensor, pb.TritonError = Tensor, TritonError
    pb.TritonModelException = type("TritonModelException", (Exception,), {})
    pb.Logger = types.SimpleNamespace(log_error=logged.append)
    pb.get_input_tensor_by_name = lambda request, name: request[name]
    pb.InferenceResponse = lambda tensors=(), error=None: types.SimpleNamespace(
        tensors=tensors, error=error
    )
    return module


@contextmanager
def program(folder: Path, logged: list[str]) -> Iterator[Any]:
    """The folder's model.py, imported anew; nothing of it stays."""
    names = ["triton_python_backend_utils", "bundle_serving.triton"]
    names += [path.stem for path in folder.glob("*.py")]
    before = {name: sys.modules.pop(name, None) for name in names}
    sys.modules[names[0]] = stub(logged)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("model")
    finally:
        sys.path.remove(str(folder))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module:
                sys.modules[name] = module
