"""One of torchvision's detectors -> ONNX, checked against PyTorch, with its anchors and labels.

    python -m kinds.detection.export --arch ssdlite320_mobilenet_v3_large --weights default \
        --boxes '{"threshold": 0.3, …}' --out build/detection

Out: model.onnx (FP32 NCHW `input`, from 0 to 255 -> FP32 `output` [batch, anchors, 4 + classes]:
how each anchor's box is shifted, and its scores), anchors.npy, labels.txt, reference.npz,
pictures/, expected.npz (what torchvision finds in those) and manifest.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bundle_serving.agreement import Bound
from kinds.detection.serving.agreement_of_boxes import DETECTION
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import EXPECTED, NOTHING, OfTorchvision
from scripts.artefacts.progress import step
from scripts.base import files

ANCHORS = "anchors.npy"
BOUNDS = {"fp32": Bound(0.001), "fp16": Bound(0.05)}


@dataclass(frozen=True)
class Detector(OfTorchvision):
    """Its labels are without the background."""

    boxes: Mapping[str, float] = field(kw_only=True)  # which boxes count

    setting: str = "DETECTION"

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        return {**super().identity(before), "boxes": dict(self.boxes)}


def export(spec: Detector, out: Path) -> None:
    identity = spec.identity()  # first, for it says what is not there
    with step(f"loading {spec.arch}, weights {Path(spec.weights).name}"):
        from kinds.detection import detectors
        from scripts.steps import checked, networks

        detector = detectors.build(spec, spec.boxes)
        network = detector.network
        model = networks.Pixels(network, spec.precision).eval()
    with files.whole_folder(out) as draft:
        with step("exporting to ONNX"):
            detectors.to_onnx(model, network.transform["crop"], draft / "model.onnx")
        made = network.as_made(identity, spec.is_untrained, DETECTION)
        original = networks.make_asker(networks.Pixels(network).eval())
        checked.compare_and_save(draft, made, None, original, BOUNDS[spec.precision])
        detector.save_anchors(draft / ANCHORS)
        with step("asking torchvision what is in the pictures"):
            detector.save_found(sorted((draft / "pictures").iterdir()), draft / EXPECTED)


if __name__ == "__main__":
    start(unless_it_fits(export), precision=BOUNDS)
