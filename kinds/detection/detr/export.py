"""A folder with a detector of transformers -> ONNX, checked against transformers.

    python -m kinds.detection.detr.export --folder street --side 800 --threshold 0.5 --out OUT

Out: the same files as from kinds.detection.export, with uint8 `input`, where each of the network's
queries is an anchor that covers the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bundle_serving.agreement import Bound
from kinds.detection.export import ANCHORS
from kinds.detection.serving.agreement_of_boxes import (
    DETECTION,
    INDEPENDENT_DETECTION,
    compare_answers,
)
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import EXPECTED, MAKERS, NOTHING, of_folder, of_samples, read_pins
from scripts.artefacts.progress import step
from scripts.base import files
from scripts.base.errors import UserError

if TYPE_CHECKING:
    from kinds.detection.detr.network import Whole
    from scripts.steps.checked import Shown

# The same arithmetic in a different order; and from the same pixels, read by other code.
BOUND, READ = Bound(0.001), Bound(0.01)


@dataclass(frozen=True)
class Detr:
    folder: Path
    side: int  # of the square that a picture is squashed into
    threshold: float  # a box with a score above it counts
    samples: Path | None = None  # photos for the check

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        if not (found := of_folder(self.folder, before)):
            remedy = "name one with a detector of Hugging Face"
            raise UserError(f"there is no folder {self.folder}", remedy)
        return {
            "source": self.folder.name,
            "files": found,
            "side": self.side,
            "threshold": self.threshold,
            "precision": "fp32",
            "versions": read_pins(*MAKERS, "transformers"),
            **of_samples(self.samples),
        }


def export(spec: Detr, out: Path) -> None:
    from scripts.steps import intake

    intake.quieten()
    identity = spec.identity()  # first, for it says what is not there
    with step(f"loading {spec.folder.name}"):
        intake.ready(is_local=True)
        import numpy as np

        from bundle_serving.protocol import golden
        from kinds.detection.detr import network
        from scripts.steps import checked, networks

        whole = network.build(spec.folder, spec.side)
        model = networks.Pixels(whole.network).eval()
    with files.whole_folder(out) as draft:
        answers = INDEPENDENT_DETECTION if whole.independent else DETECTION
        with step("exporting to ONNX"):
            network.to_onnx(model, spec.side, answers, draft / "model.onnx")
        made = whole.network.as_made(identity, False, answers, {"most": whole.most})
        with step("asking transformers what is in the pictures"):
            asked = checked.show_pictures(spec.samples, made.transform)
            rows = np.concatenate([networks.make_asker(model)(each[None]) for each in asked.pixels])
            _require_read(whole, spec, asked, rows)
            found = [whole.find(file, spec.threshold) for file in asked.files]
        checked.finish(draft, made, asked, rows, BOUND)
        np.save(draft / ANCHORS, whole.anchors(spec.side))
        golden.save(draft / EXPECTED, found)


def _require_read(whole: Whole, spec: Detr, asked: Shown, rows: Any) -> None:
    """That pictures are prepared, and rows are read, as transformers does it: all boxes count."""
    expected, found = [], []
    for file, pixels, row in zip(
        asked.files, asked.pixels[-len(asked.files) :], rows[-len(asked.files) :], strict=True
    ):
        whole.require_prepared(file, pixels)
        expected.append(whole.find(file, 0))
        found.append(whole.read(spec.side, row, file))
    agreement = compare_answers(expected, found)
    if not agreement.within(READ):
        raise UserError(
            f"{spec.folder.name} finds other boxes in transformers than here ({agreement}; {READ})",
            "it cannot be served; please report this as a bug, with its config.json",
        )


if __name__ == "__main__":
    start(unless_it_fits(export))
