"""Weights -> ONNX, checked against PyTorch and installed atomically.

    python -m scripts.steps.export --arch resnet50 --weights default --out build/onnx

Out: model.onnx (uint8 NCHW `input` -> FP32 scores `output`, dynamic batch), labels.txt,
reference.npz (pixels and PyTorch's scores), pictures/ and manifest.json.
"""

from pathlib import Path
from typing import Any

from bundle_serving.agreement import Bound
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import Torchvision
from scripts.artefacts.progress import step
from scripts.base import files
from scripts.settings.choices import require_known

# The largest difference from PyTorch's probabilities in float32: the same arithmetic, with half of
# the digits correct.
BOUNDS = {"fp32": Bound(0.001), "fp16": Bound(0.05)}


def export(wanted: Torchvision, out: Path) -> None:
    require_known(wanted.arch)
    identity = wanted.identity()  # first, for it says what is not there
    with step(f"loading {wanted.arch}, weights {wanted.weights}"):
        from scripts.steps import checked, networks

        network = networks.build(wanted)
        original = networks.Pixels(network).eval()
        model = networks.Pixels(network, wanted.precision).eval()
    with files.whole_folder(out) as draft:
        with step("exporting to ONNX"):
            to_onnx(model, network.transform["crop"], draft / "model.onnx")
        made = network.as_made(identity, wanted.is_untrained)
        bound = BOUNDS[wanted.precision]
        checked.compare_and_save(draft, made, wanted.samples, networks.make_asker(original), bound)


def to_onnx(model: Any, crop: int, path: Path) -> None:
    import torch

    from scripts.artefacts.onnx_file import BATCH, save

    example = torch.zeros(2, 3, crop, crop, dtype=torch.uint8)
    save(model, {"input": example}, ({0: BATCH},), "output", path)


if __name__ == "__main__":
    start(unless_it_fits(export), precision=BOUNDS)
