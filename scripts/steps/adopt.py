"""A user's ONNX model -> one that takes uint8 pixels as ours do, checked against the original.

    python -m scripts.steps.adopt --network birds.onnx --labels birds.txt \
        --pictures '{"resize": 256, "crop": 224, …}' --out build/onnx

Out: the same files as from export. The original runs in ONNX Runtime, on pixels normalised here.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from scripts.base import files
from scripts.base.errors import UserError, guarded
from scripts.steps.agreement import Bound
from scripts.steps.manifest import Foreign, lines_of, why_export
from scripts.steps.progress import step

# The same arithmetic on the same numbers, in a different order.
BOUND = Bound(0.001)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", type=Path, required=True)
    parser.add_argument(
        "--labels", type=Path, help="one per line; without it, classes are numbered"
    )
    parser.add_argument("--pictures", type=json.loads, required=True)
    parser.add_argument("--samples", type=Path, help="a folder of photos for the check")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    wanted = Foreign(options.network, options.labels, options.pictures)
    if why_export(options.out, wanted) is None:
        print(f"{options.out} fits: nothing to adopt")
        return 0
    adopt(wanted, options.samples, options.out)
    return 0


def adopt(wanted: Foreign, samples: Path | None, out: Path) -> None:
    with step(f"reading {wanted.network.name}"):
        from scripts.steps import checked
        from scripts.steps.foreign import adopted
        from scripts.steps.signature import signature

        facts = signature(wanted.network)
        how = wanted.pictures
        if facts.crop != how["crop"]:
            raise UserError(
                f"{wanted.network.name} takes {facts.crop} pixels, and the recipe says"
                f" crop: {how['crop']}",
                "change one of them",
            )
        labels = lines_of(wanted.labels) or [f"class {each}" for each in range(facts.classes)]
        require_a_label_each(labels, facts.classes, wanted.labels, wanted.network)
        original = Original(wanted.network, how)
        identity = wanted.identity()
    with files.whole_folder(out) as draft:
        (draft / "model.onnx").write_bytes(
            adopted(wanted.network, how["mean"], how["std"]).SerializeToString()
        )
        made = checked.Made(
            identity=identity,
            untrained=False,
            transform={name: how[name] for name in ("resize", "crop", "interpolation")},
            labels=labels,
            weights={"source": wanted.network.name, "sha256": identity["sha256"]},
            original=original,
            called="the original",
        )
        checked.finish(draft, made, samples, BOUND)


def require_a_label_each(
    labels: list[str], classes: int, source: Path | None, network: Path
) -> None:
    if len(labels) != classes:
        raise UserError(
            f"{source} has {len(labels)} labels, and {network.name} {classes} classes",
            "give one label per line, in the network's order",
        )


class Original:
    """The original network: normalised floats -> scores or probabilities."""

    def __init__(self, path: Path, how: dict[str, Any]) -> None:
        import numpy as np
        import onnxruntime

        from scripts.steps.foreign import gives_probabilities

        try:
            self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as fault:  # ONNX Runtime's exceptions have no common base class
            said = " ".join(str(fault).split())[:200]
            raise UserError(
                f"{path.name} cannot be run: {said}",
                "export it with standard ONNX operators, in a single file",
            ) from None
        self._mean, self._std = (
            np.array(how[name], np.float32).reshape(1, 3, 1, 1) for name in ("mean", "std")
        )
        self._gives_probabilities = gives_probabilities(path)

    def __call__(self, pixels: Any) -> Any:
        import numpy as np

        normalised = (pixels.astype(np.float32) / 255 - self._mean) / self._std
        name = self._session.get_inputs()[0].name
        (scores,) = self._session.run(None, {name: normalised})
        # Logarithms of probabilities work as scores: softmax inverts them.
        return np.log(np.maximum(scores, 1e-30)) if self._gives_probabilities else scores


if __name__ == "__main__":
    sys.exit(guarded(main))
