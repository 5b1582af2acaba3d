"""A Places365 checkpoint -> ONNX, checked against PyTorch, and the names of its classes.

    python -m scripts.steps.places --weights resnet50_places365.pth.tar --out build/places

Out: model.onnx (input_0 [batch, 3, side, side] -> output_0, scores), labels.txt, reference.npz
(pixels, and PyTorch's scores of them) and manifest.json.
The names are read from categories_places365.txt beside the checkpoint; where there is none, classes
have numbers.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.base import files
from scripts.base.errors import NoWeights, UserError, guarded
from scripts.base.paths import ROOT
from scripts.recipes.schema import Array, load_as
from scripts.steps.agreement import Bound
from scripts.steps.manifest import Manifest, pinned, why_export
from scripts.steps.progress import step

RECIPE = ROOT / "recipes" / "places365.yaml"
CATEGORIES = "categories_places365.txt"
UNTRAINED = "random"
INPUT, OUTPUT = "input_0", "output_0"
BOUNDS = {"fp32": Bound(0.001), "fp16": Bound(0.05)}
MAKERS = ("torch", "torchvision", "onnx", "onnxscript")


@dataclass(frozen=True)
class Wanted:
    source: str
    weights: str  # a file, or "random"
    precision: str = "fp32"  # or "fp16": half precision inside, as a strongly typed engine wants it

    @property
    def untrained(self) -> bool:
        return self.weights == UNTRAINED

    @property
    def categories(self) -> Path | None:
        path = Path(self.weights).with_name(CATEGORIES)
        return path if not self.untrained and path.is_file() else None

    def identity(self) -> dict[str, Any]:
        """All that the artefact depends on, told apart without loading any of it."""
        found: dict[str, Any] = {"source": self.source, "weights": {"source": self.weights}}
        found["precision"] = self.precision
        if not self.untrained:
            path = Path(self.weights)
            if not path.is_file():
                raise NoWeights(
                    f"no Places365 checkpoint at {self.weights or '(nothing named)'}",
                    "download resnet50_places365.pth.tar and categories_places365.txt from "
                    "places2.csail.mit.edu and name the first (PLACES=…), or see it run untrained "
                    "(PLACES=random)",
                )
            found["weights"] = {"source": path.name, "sha256": files.sha256(path)}
        if self.categories:
            found["categories"] = files.sha256(self.categories)
        return found | {"versions": pinned(*MAKERS)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", required=True, help="a .pth.tar file, or random")
    parser.add_argument("--precision", choices=BOUNDS, default="fp32")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    recipe = load_as(RECIPE, Array)
    wanted = Wanted(recipe.source, options.weights, options.precision)
    if why_export(options.out, wanted) is None:
        print(f"{options.out} fits: nothing to export")
        return 0
    export(wanted, recipe, options.out)
    return 0


def export(wanted: Wanted, recipe: Array, out: Path) -> None:
    labels = names(wanted, recipe.classes)
    with step(f"loading {wanted.source}, weights {Path(wanted.weights).name}"):
        module = _network(wanted, recipe.classes)
    with files.whole_folder(out) as draft:
        onnx_path = draft / "model.onnx"
        with step("exporting to ONNX"):
            _to_onnx(module, wanted.precision, recipe.pictures.side, onnx_path)
        with step("comparing ONNX with PyTorch"):
            difference = _check(module, wanted.precision, recipe.pictures.side, draft)
        print(f"  probabilities within {difference:.2g}")
        (draft / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
        manifest = Manifest(
            identity=wanted.identity(),
            untrained=wanted.untrained,
            transform=recipe.pictures.model_dump(),
            onnx={"sha256": files.sha256(onnx_path), "classes": recipe.classes},
            check={"max_difference": difference, "bound": BOUNDS[wanted.precision].difference},
        )
        (draft / "manifest.json").write_text(manifest.dump())


def names(wanted: Wanted, classes: int) -> list[str]:
    """Lines like "/a/airfield 0", in any order -> the names by number."""
    if wanted.categories is None:
        suffix = " (untrained weights)" if wanted.untrained else ""
        return [f"class {number}{suffix}" for number in range(classes)]
    found = {}
    for line in wanted.categories.read_text().splitlines():
        path, _, number = line.rpartition(" ")
        found[number] = path[3:] if path[:1] == "/" and path[2:3] == "/" else path
    try:
        return [found[str(number)] for number in range(classes)]
    except KeyError as missing:
        raise UserError(
            f"{wanted.categories} names no class {missing.args[0]}",
            f"give all {classes}, one a line: /a/airfield 0",
        ) from None


def _network(wanted: Wanted, classes: int) -> Any:
    import torch

    from scripts.steps.networks import read_state
    from scripts.steps.vision import torchvision

    arch = wanted.source.removeprefix("torchvision/")
    torch.manual_seed(0)
    module = torchvision.models.get_model(arch, weights=None, num_classes=classes)
    if not wanted.untrained:
        try:
            module.load_state_dict(read_state(Path(wanted.weights)))
        except RuntimeError as fault:
            detail = " ".join(str(fault).split())[:160]
            raise UserError(
                f"{Path(wanted.weights).name} holds no weights of {arch} with {classes} classes "
                f"({detail}…)",
                "give the checkpoint of Places365's resnet50",
            ) from None
    return module.eval()


def _to_onnx(module: Any, precision: str, side: int, path: Path) -> None:
    import torch

    from scripts.steps.networks import Halved
    from scripts.steps.onnx_file import BATCH, save

    inside = Halved(module).eval() if precision == "fp16" else module
    save(inside, {INPUT: torch.zeros(2, 3, side, side)}, ({0: BATCH},), OUTPUT, path)


def _check(module: Any, precision: str, side: int, out: Path) -> float:
    import numpy as np
    import onnxruntime
    import torch

    from scripts.steps.agreement import compare

    pixels = torch.randn(4, 3, side, side, generator=torch.manual_seed(0))
    with torch.inference_mode():
        expected = module(pixels).numpy()
    onnx_path, bound = out / "model.onnx", BOUNDS[precision]
    session = onnxruntime.InferenceSession(onnx_path, providers=["CPUExecutionProvider"])
    (scores,) = session.run([OUTPUT], {INPUT: pixels.numpy()})
    np.savez(out / "reference.npz", scores=expected, **{INPUT: pixels.numpy()})
    agreement = compare(expected, scores)
    if not agreement.within(bound):
        raise UserError(
            f"the ONNX graph disagrees with PyTorch (probabilities differ by "
            f"{agreement.max_difference:.2g}; {bound})",
            "nothing was put in place; this network does not export faithfully",
        )
    return agreement.max_difference


if __name__ == "__main__":
    sys.exit(guarded(main))
