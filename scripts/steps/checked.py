"""A freshly exported ONNX file -> the folder that all later steps read.

Compares it with its original and adds labels.txt, reference.npz (pixels and the original's scores),
pictures/ and manifest.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from bundle_serving.pictures import Transform
from scripts.base import files
from scripts.base.errors import UserError
from scripts.steps.agreement import Agreement, Bound, compare
from scripts.steps.manifest import Manifest
from scripts.steps.progress import step
from scripts.steps.samples import noise, pictures


@dataclass(frozen=True)
class Made:
    """A network before the comparison."""

    identity: dict[str, Any]
    untrained: bool
    transform: dict[str, Any]
    labels: list[str]
    weights: dict[str, str]
    original: Callable[[NDArray[Any]], NDArray[Any]]  # pixels of one picture -> its scores
    called: str


def finish(draft: Path, made: Made, samples: Path | None, bound: Bound) -> None:
    path = draft / "model.onnx"
    with step(f"comparing ONNX with {made.called}"):
        how = Transform(**made.transform, decode="full")
        shown = pictures(samples, how)
        pixels = np.stack([*noise(how), *(each for _, each in shown)])
        reference = np.concatenate([made.original(each[None]) for each in pixels])
        agreement = _compared(path, pixels, reference, bound, made.called)
    print(f"  {agreement}")
    # The reference's last rows belong to the pictures, in this order.
    np.savez_compressed(draft / "reference.npz", pixels=pixels, scores=reference)
    (draft / "pictures").mkdir()
    for number, (file, _) in enumerate(shown):
        (draft / "pictures" / f"{number:03}").write_bytes(file)
    (draft / "labels.txt").write_text("".join(f"{label}\n" for label in made.labels))
    manifest = Manifest(
        identity=made.identity,
        untrained=made.untrained,
        transform=made.transform,
        onnx={
            "sha256": files.sha256(path),
            "input": ["uint8", 3, how.crop, how.crop],
            "classes": len(made.labels),
            "weights": made.weights,
        },
        check=agreement.record(bound),
    )
    (draft / "manifest.json").write_text(manifest.dump())


def _compared(
    path: Path, pixels: NDArray[Any], reference: NDArray[Any], bound: Bound, called: str
) -> Agreement:
    options = onnxruntime.SessionOptions()
    # onnxruntime 1.31 crashes with more optimisations on vit_b_16 in half precision.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["output"], {"input": pixels})
    agreement = compare(reference, scores)
    if not agreement.within(bound):
        raise UserError(
            f"the ONNX graph disagrees with {called} ({agreement}; {bound})",
            "nothing was changed; this network cannot be converted faithfully",
        )
    return agreement
