"""A model folder without config.pbtxt -> the config that Triton needs, where
the server completes none by itself. Runs in the server's environment.

    python -m scripts.steps.complete --model build/live/simple --out build/run/config.json
"""

import importlib.util
import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

from scripts.artefacts.exporting import start
from scripts.base import files
from scripts.base.errors import UserError

# As Triton's own backends choose, for a network that takes any batch.
MOST_AT_ONCE = 4


def main(model: Path, out: Path) -> None:
    files.write(out, json.dumps(complete_config(model)) + "\n")


def complete_config(model: Path) -> dict[str, Any]:
    versions = (path for path in model.glob("[1-9]*") if path.name.isdecimal())
    known = {"model.onnx": _of_onnx, "model.py": _of_python}
    for version in sorted(versions, key=lambda path: int(path.name), reverse=True):
        for name, complete in known.items():
            if (version / name).is_file():
                return {"name": model.name} | complete(version / name, model.name)
    raise UserError(
        f"{model.name} has no config.pbtxt, and no {' or '.join(known)} in a folder of its version",
        "write its config.pbtxt",
    )


def _of_onnx(path: Path, name: str) -> dict[str, Any]:
    from bundle_serving.openvino_engine import describe_tensor, openvino

    try:
        network = openvino.Core().read_model(path)
    except RuntimeError as fault:
        message = " ".join(str(fault).split())[:300]
        raise UserError(
            f"OpenVINO cannot read {name}: {message}", "see docs/pipelines.md"
        ) from None
    tensors = [
        [{"name": tensor.any_name} | describe_tensor(tensor) for tensor in side]
        for side in (network.inputs, network.outputs)
    ]
    return {"backend": "onnxruntime", **_describe_batch(*tensors)}


def _describe_batch(taken: list[Any], given: list[Any]) -> dict[str, Any]:
    """The first dimension is the batch if it is open everywhere."""
    together = all(tensor["dims"][:1] == [-1] for tensor in (*taken, *given))
    for tensor in (*taken, *given) if together else ():
        del tensor["dims"][0]
    for tensor in (*taken, *given):
        if not tensor["dims"]:  # Triton has no tensors without dimensions
            tensor |= {"dims": [1], "reshape": {"shape": []}}
    config = {"max_batch_size": MOST_AT_ONCE if together else 0, "input": taken, "output": given}
    return config | ({"dynamic_batching": {}} if together else {})


def _of_python(path: Path, name: str) -> dict[str, Any]:
    """By the model's own auto_complete_config."""
    backend = Path(sysconfig.get_path("purelib")) / "pytriton" / "tritonserver" / "backends"
    sys.path.insert(0, str(backend / "python"))
    import triton_python_backend_utils as pb

    empty = {"name": name, "max_batch_size": 0, "input": [], "output": []}
    try:
        spec = importlib.util.spec_from_file_location("model", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        complete = module.TritonPythonModel.auto_complete_config
        config: dict[str, Any] = complete(pb.ModelConfig(json.dumps(empty))).as_dict()
    except Exception as fault:
        raise UserError(
            f"{name} has no config.pbtxt, and its model.py cannot say one ({fault})",
            "write its config.pbtxt, or a method auto_complete_config",
        ) from None
    return config | {"backend": "python"}


if __name__ == "__main__":
    start(main)
