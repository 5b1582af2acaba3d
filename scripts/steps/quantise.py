"""ONNX -> the same network in int8, for CPUs, calibrated with pictures.

    python -m scripts.steps.quantise --onnx build/onnx --calibration photos --accuracy 99 \\
        --out build/int8

Out: model.onnx (quantise and dequantise nodes around every layer, but for those in which int8 would
change too many labels), manifest.json, and reference.npz (held-back pictures and the float32
network's scores), with which the engine step checks the accuracy where the network will run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.agreement import Agreement, Bound, compare
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import NOTHING, Manifest, read_pins
from scripts.artefacts.progress import step, tell
from scripts.base import files
from scripts.base.errors import UserError
from scripts.steps import engine

if TYPE_CHECKING:  # the host has no onnxruntime, and asks only whether a quantised network fits
    from scripts.steps.eight_bits import Quantiser

# One in this many pictures is held out for the check.
HELD_BACK = 4
# More pictures improve neither calibration nor check, and cost time.
MOST_PICTURES = 400
# Fewer calibration pictures are reused, cropped and mirrored, to make this many views.
ENOUGH_VIEWS = 100
CLOSER = (1.0, 1.25, 1.5, 2.0)
# The network is divided into so many, to find those that int8 harms most.
PARTS = 8
# Enough to tell which.
RANKED_BY = 32


@dataclass(frozen=True)
class Asked:
    """Pictures, and the float32 network's scores."""

    pixels: NDArray[np.uint8]
    scores: NDArray[Any]
    answers: str
    bound: Bound

    def agreement(self, network: Path) -> Agreement:
        return compare(self.scores, engine.scores(network, self.pixels), self.answers)

    def deviation(self, network: Path) -> float:
        few = slice(RANKED_BY)
        moved = engine.scores(network, self.pixels[few]) - self.scores[few]
        return float(np.square(moved).mean())


@dataclass(frozen=True)
class Quantised:
    onnx: Path  # the fp32 directory that export wrote
    calibration: Path | None  # a folder of photos; without, the earlier calibration is used
    accuracy: float  # percent of the labels that must stay

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        source, photos = Manifest.of_export(self.onnx), before.get("calibration")
        return source.identity | {
            "precision": "int8",
            "accuracy": self.accuracy,
            "onnx": source.onnx["sha256"],
            "calibration": identify_photos(self.calibration) if self.calibration else photos,
            **read_pins("onnxruntime", "openvino"),
        }


def identify_photos(folder: Path) -> str:
    """A hash of names and sizes: reading hundreds of photos at each start would be slow."""
    found = (path for path in sorted(folder.rglob("*")) if path.exists())  # not links to nothing
    names = [f"{path.relative_to(folder)} {path.stat().st_size}" for path in found]
    return hashlib.sha256(os.fsencode("\n".join(names))).hexdigest()


def quantise(wanted: Quantised, out: Path) -> None:
    from bundle_serving.pictures import Transform, to_pixels
    from scripts.artefacts import samples
    from scripts.steps.eight_bits import Quantiser

    onnx, calibration = wanted.onnx, wanted.calibration
    assert calibration  # without, no step is begun
    source = Manifest.of_export(onnx)
    how = Transform(**source.transform, decode="full")
    with step("reading the calibration pictures"):
        photos = samples.read(calibration, MOST_PICTURES, "CALIBRATION")
    if len(photos) < 2:
        raise UserError(
            f"CALIBRATION={calibration} contains one picture, but two are needed: "
            "one to calibrate with and one to check with",
            "put a few hundred photos in it",
        )
    held_back, learnt = divide_photos(photos)
    judged = np.stack([to_pixels(photo, how) for photo in held_back])
    shown = list(views(learnt, how))
    if len(learnt) < ENOUGH_VIEWS:
        tell(f"  only {len(learnt)} pictures, used in {len(shown)} views; a hundred are better")
    scores = engine.scores(onnx / "model.onnx", judged, "fp32")
    bound = Bound(engine.BOUNDS["int8"].difference, wanted.accuracy / 100)
    with files.whole_folder(out) as draft, TemporaryDirectory() as between:
        with step(f"quantising on {len(shown)} views of {len(learnt)} pictures"):
            quantiser = Quantiser(onnx / "model.onnx", shown, Path(between))
            asked = Asked(judged, scores, engine.answers(onnx), bound)
            kept, agreement = fastest(quantiser, asked, draft / "model.onnx")
        tell(f"  {len(kept)} of {len(quantiser.layers)} layers are not in int8; {agreement}")
        np.savez_compressed(draft / "reference.npz", pixels=judged, scores=scores)
        manifest = replace(
            source,
            identity=wanted.identity(),
            onnx=source.onnx | {"sha256": files.sha256(draft / "model.onnx")},
            check={"learnt from": len(learnt), "not in int8": kept} | agreement.record(bound),
        )
        (draft / "manifest.json").write_text(manifest.dump())


def divide_photos(photos: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Those to check with, and those to calibrate with."""
    learnt = [photo for number, photo in enumerate(photos) if number % HELD_BACK]
    return photos[::HELD_BACK], learnt


def views(photos: list[bytes], how: Any) -> Iterator[Any]:
    """Each photo's pixels; if there are few, also cropped and mirrored, until there are enough."""
    from bundle_serving.pictures import to_pixels

    count = 0
    for closer in CLOSER:
        for mirrored in (False, True):
            for photo in photos:
                pixels = to_pixels(photo, replace(how, resize=round(how.resize * closer)))
                yield pixels[:, :, ::-1].copy() if mirrored else pixels
                count += 1
            if count >= ENOUGH_VIEWS:
                return


def fastest(quantiser: Quantiser, asked: Asked, target: Path) -> tuple[list[str], Agreement]:
    """Writes the network that keeps enough labels with the most parts in int8. Returns the layers
    of the others."""
    quantiser.write(target)
    agreement = asked.agreement(target)
    kept: list[str] = []
    if not agreement.within(asked.bound):
        with step(f"int8 keeps too few labels ({agreement}): looking for what harms most"):
            ranked = by_harm(quantiser, asked, target)
        for part in ranked[: PARTS // 2]:
            kept += part
            quantiser.write(target, kept)
            agreement = asked.agreement(target)
            if agreement.within(asked.bound):
                return kept, agreement
        raise UserError(
            f"int8 fails the accuracy check, even with half of the layers left out "
            f"({agreement}; {asked.bound})",
            "calibrate on more pictures, lower ACCURACY, or serve with PRECISION=auto",
        )
    return kept, agreement


def by_harm(quantiser: Quantiser, asked: Asked, target: Path) -> list[list[str]]:
    """The network's parts, first the one without which int8 is nearest to float32."""

    def measure_rest(part: list[str]) -> float:
        quantiser.write(target, part)
        return asked.deviation(target)

    return sorted(quantiser.parts(PARTS), key=measure_rest)


if __name__ == "__main__":
    start(unless_it_fits(quantise))
