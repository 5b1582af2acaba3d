"""One of torchvision's networks for segmentation -> ONNX, checked against PyTorch, with its labels.

    python -m kinds.segmentation.export --arch lraspp_mobilenet_v3_large --weights default \
        --out build/segmentation

Out: model.onnx (uint8 NCHW `input`, of any height and width -> uint8 `output` [batch, height,
width]: the number of each pixel's class), labels.txt, reference.npz, pictures/, of several sizes,
expected.npz (what torchvision sees in those) and manifest.json.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bundle_serving.agreement import Bound
from bundle_serving.protocol import golden
from kinds.segmentation.serving.agreement_of_masks import SEGMENTATION, of_masks
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import EXPECTED, OfTorchvision
from scripts.artefacts.progress import step
from scripts.base import files

# Of the pixels that get another class.
BOUNDS = {"fp32": Bound(0.001), "fp16": Bound(0.01)}
# Width and height of the pictures of the check.
SIZES = ((640, 480), (320, 320), (97, 61), (375, 1000))


@dataclass(frozen=True)
class Segmenter(OfTorchvision):
    """Its labels are by the number of the class, the background's too."""

    setting: str = "SEGMENTATION"


def export(spec: Segmenter, out: Path) -> None:
    identity = spec.identity()  # first, for it says what is not there
    with step(f"loading {spec.arch}, weights {Path(spec.weights).name}"):
        from PIL import Image

        from bundle_serving.pictures import Transform, to_pixels
        from kinds.segmentation import segmenters
        from scripts.artefacts.samples import RANDOM_PICTURES, make_varied, noise, of_sizes
        from scripts.intake.original import Session, rows
        from scripts.steps import checked, networks

        whole = segmenters.build(spec)
        network = whole.network
        model = segmenters.Classes(network, spec.precision).eval()
    how = Transform(**network.transform, decode="full")
    with files.whole_folder(out) as draft:
        with step("exporting to ONNX"):
            segmenters.to_onnx(model, draft / "model.onnx")
        made = network.as_made(identity, spec.is_untrained, SEGMENTATION)
        with step("asking PyTorch itself"):
            original = networks.make_asker(segmenters.Classes(network).eval())
            # Without white noise, where the classes of neighbours have nothing to do with each
            # other, and half precision may well choose others.
            natural = noise(how)[RANDOM_PICTURES:]
            squares = [to_pixels(file, how) for file in make_varied()[:RANDOM_PICTURES]]
            asked = checked.Shown(of_sizes(SIZES), np.stack([*natural, *squares]))
            reference = np.concatenate([original(each[None]) for each in asked.pixels])
        checked.finish(draft, made, asked, reference, BOUNDS[spec.precision])
        with step("asking torchvision what is in pictures of several sizes"):
            expected = [whole.see(Image.open(io.BytesIO(file))) for file in asked.files]
        golden.save(draft / EXPECTED, [{"MASK": mask} for mask in expected])
        exported = Session(draft / "model.onnx", "the exported network")
        masks = [rows(exported, to_pixels(file, how)[None], True) for file in asked.files]
        checked.require(of_masks(expected, masks), BOUNDS[spec.precision], "torchvision")


if __name__ == "__main__":
    start(unless_it_fits(export), precision=BOUNDS)
