"""A Places365 checkpoint -> ONNX, checked against PyTorch, with the names of its classes.

    python -m kinds.places.export --source torchvision/resnet50 --classes 365 \
        --pictures '{"side": 256, …}' --weights resnet50_places365.pth.tar --out build/places

Out: model.onnx (input_0 [batch, 3, side, side] -> output_0, scores), labels.txt, reference-0.npz
(pixels and PyTorch's scores), golden.npz (pictures of any size and PyTorch's scores) and
manifest.json. Without --categories, classes are numbered.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_serving.agreement import Bound
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import MAKERS, NOTHING, of_file, read_pins, write_manifest
from scripts.artefacts.progress import step
from scripts.base import files
from scripts.base.errors import NoWeights, UserError

CATEGORIES = "categories_places365.txt"
UNTRAINED = "random"
INPUT, OUTPUT = "input_0", "output_0"
BOUNDS = {"fp32": Bound(0.001), "fp16": Bound(0.05)}


@dataclass(frozen=True)
class Checkpoint:
    source: str
    weights: str  # a file, or "random"
    classes: int
    pictures: Mapping[str, Any]  # side, mean and standard deviation
    precision: str = "fp32"  # or "fp16": half precision inside, for a strongly typed engine
    categories: Path | None = None

    @property
    def is_untrained(self) -> bool:
        return self.weights == UNTRAINED

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        weights = {"source": self.weights}
        if not self.is_untrained:
            weights = of_file(Path(self.weights), before.get("weights"))
            if not weights:
                raise NoWeights(
                    f"no Places365 checkpoint at {self.weights or '(none given)'}",
                    "download resnet50_places365.pth.tar and categories_places365.txt from "
                    "places2.csail.mit.edu and name the first (PLACES=…), or try it untrained "
                    "(PLACES=random)",
                )
        named = of_file(self.categories, before.get("categories")) if self.categories else None
        return {
            "source": self.source,
            "weights": weights,
            "classes": self.classes,
            "pictures": dict(self.pictures),
            "precision": self.precision,
            "categories": named,
            "versions": read_pins(*MAKERS),
        }


def categories_beside(weights: str) -> Path | None:
    path = Path(weights).with_name(CATEGORIES) if Path(weights).name else None
    return path if path and path.is_file() else None


def export(spec: Checkpoint, out: Path) -> None:
    labels = names(spec)
    with step(f"loading {spec.source}, weights {Path(spec.weights).name}"):
        import torch

        from scripts.steps import checked, networks

        module = _network(spec)
        original = networks.make_asker(module)
    side, bound = spec.pictures["side"], BOUNDS[spec.precision]
    with files.whole_folder(out) as draft:
        with step("exporting to ONNX"):
            _to_onnx(module, spec.precision, side, draft / "model.onnx")
        with step("comparing ONNX with PyTorch"):
            pixels = torch.randn(4, 3, side, side, generator=torch.manual_seed(0)).numpy()
            agreement, _ = checked.compare_batches(draft, original, [{INPUT: pixels}])
            _ask_golden(original, spec.pictures, draft)
        checked.require(agreement, bound, "PyTorch")
        write_manifest(
            draft,
            spec.identity(),
            {"classes": spec.classes},
            agreement.record(bound),
            transform=spec.pictures,
            labels=labels,
            untrained=spec.is_untrained,
        )


def _ask_golden(original: Callable[..., Any], pictures: Mapping[str, Any], out: Path) -> None:
    """Pictures of several shapes, like those that callers send."""
    import numpy as np

    from bundle_serving.protocol import golden
    from kinds.places.serving.arrays import Squares, to_square
    from scripts.artefacts.picture import mug

    drawing = np.asarray(mug().convert("RGB").resize((320, 320)), np.float32)
    shown: list[Any] = [drawing, drawing[:, ::-1], drawing[40:280], drawing[:, 60:200] / 2]
    squares = np.stack([to_square(each, Squares(**pictures)) for each in shown])
    questions = [{"INPUT": each[None]} for each in shown]
    golden.save(out / "golden.npz", questions, scores=original(squares))


def names(spec: Checkpoint) -> list[str]:
    """Lines like "/a/airfield 0", in any order -> the names by number."""
    if spec.categories is None:
        suffix = " (untrained weights)" if spec.is_untrained else ""
        return [f"class {number}{suffix}" for number in range(spec.classes)]
    found = {}
    for line in spec.categories.read_text().splitlines():
        path, _, number = line.rpartition(" ")
        found[number] = path[3:] if path[:1] == "/" and path[2:3] == "/" else path
    try:
        return [found[str(number)] for number in range(spec.classes)]
    except KeyError as missing:
        raise UserError(
            f"{spec.categories} has no name for class {missing.args[0]}",
            f"give all {spec.classes}, one per line: /a/airfield 0",
        ) from None


def _network(spec: Checkpoint) -> Any:
    import torch

    from scripts.steps.networks import fill_weights, read_state
    from scripts.steps.vision import torchvision

    arch = spec.source.removeprefix("torchvision/")
    torch.manual_seed(0)
    module = torchvision.models.get_model(arch, weights=None, num_classes=spec.classes)
    if not spec.is_untrained:
        path, of = Path(spec.weights), f"{arch} with {spec.classes} classes"
        fill_weights(
            module, read_state(path), of, path, "give the checkpoint of Places365's resnet50"
        )
    return module.eval()


def _to_onnx(module: Any, precision: str, side: int, path: Path) -> None:
    import torch

    from scripts.artefacts.onnx_file import BATCH, save
    from scripts.steps.networks import Halved

    inside = Halved(module).eval() if precision == "fp16" else module
    save(inside, {INPUT: torch.zeros(2, 3, side, side)}, ({0: BATCH},), OUTPUT, path)


if __name__ == "__main__":
    start(unless_it_fits(export), precision=BOUNDS)
