"""ONNX -> the precision for this machine's CPU, checked on reference scores.

    python -m scripts.steps.engine --onnx build/onnx --precision auto --out build/engine

Out: engine.json (precision, and the result of the check). Runs in the server's environment.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.agreement import Bound, compare
from bundle_serving.infer import Question
from scripts.base import files
from scripts.base.errors import UserError, guarded
from scripts.settings.precision import PRECISIONS
from scripts.steps.manifest import pinned

# Compared with PyTorch in float32. int8 shifts probabilities; what counts is that labels stay the
# same, on pictures that were not used for calibration.
BOUNDS = {"fp32": Bound(0.001), "bf16": Bound(0.1), "int8": Bound(1, top1=0.9)}
# Inputs whose name in the file differs from that in the graph.
TENSORS = {"pixels": "input"}
REMEDIES = {"int8": "calibrate on more pictures, or serve with PRECISION=auto"}


def identity(onnx: Path, precision: str) -> dict[str, Any]:
    """Everything that the decision depends on."""
    return {
        "onnx": json.loads((onnx / "manifest.json").read_text())["onnx"]["sha256"],
        "wanted": precision,
        "processor": processor(),
        **pinned("openvino"),
    }


def fits(onnx: Path, precision: str, out: Path) -> bool:
    try:
        proved = json.loads((out / "engine.json").read_text())["identity"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(proved == identity(onnx, precision))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--onnx", type=Path, required=True, help="the directory that export or quantise wrote"
    )
    parser.add_argument("--precision", choices=PRECISIONS, default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    if fits(options.onnx, options.precision, options.out):
        print(f"{options.out} fits: nothing to check")
        return 0
    decision = decide(options.onnx, options.precision)
    print(f"- precision {decision['precision']}: {decision['why']}")
    files.write(
        options.out / "engine.json",
        json.dumps({"identity": identity(options.onnx, options.precision)} | decision, indent=2)
        + "\n",
    )
    return 0


def decide(onnx: Path, precision: str) -> dict[str, Any]:
    """The precision to serve with, and why; raises if the requested one fails its check."""
    from bundle_serving.openvino_engine import has_bf16

    if precision == "auto":
        if not has_bf16():
            return _proof(onnx, "fp32", "this CPU has no bfloat16")
        try:
            return _proof(onnx, "bf16", "this CPU has bfloat16")
        except UserError as refusal:
            return _proof(onnx, "fp32", refusal.cause)
    return _proof(onnx, precision, "as asked")


def _proof(onnx: Path, precision: str, why: str) -> dict[str, Any]:
    from bundle_serving.openvino_engine import Engine

    asked = references(onnx)
    try:
        engine = Engine(onnx / "model.onnx", precision, threads=0)
        scores = np.concatenate([engine.only_output(inputs) for inputs, _ in asked])
    except RuntimeError as fault:  # an unknown operator
        message = " ".join(str(fault).split())[:300]
        raise UserError(
            f"OpenVINO cannot run this network: {message}", "export it with standard ONNX operators"
        ) from None
    expected = np.concatenate([each for _, each in asked])
    agreement = compare(expected, scores, answers(onnx))
    bound = BOUNDS[precision]
    if not agreement.within(bound):
        raise UserError(
            f"{precision} fails the accuracy check ({agreement}; {bound})",
            REMEDIES.get(precision, "serve with PRECISION=fp32"),
        )
    return {
        "precision": precision,
        "why": f"{why}; {agreement}",
        "check": agreement.record(bound),
    }


def answers(made: Path) -> str:
    """How the scores of an export are read."""
    found: str = json.loads((made / "manifest.json").read_text())["onnx"].get("answers")
    return found or "single-label"


def references(made: Path) -> list[tuple[Question, NDArray[Any]]]:
    """The reference of an export: inputs by name, one at a time, and PyTorch's scores."""
    found: list[tuple[Question, NDArray[Any]]] = []
    for path in sorted(made.glob("reference*.npz")):
        kept = {TENSORS.get(name, name): each for name, each in np.load(path).items()}
        scores = kept.pop("scores")
        for row in range(len(scores)):
            at = slice(row, row + 1)
            found.append(({name: each[at] for name, each in kept.items()}, scores[at]))
    return found


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.machine()


if __name__ == "__main__":
    sys.exit(guarded(main))
