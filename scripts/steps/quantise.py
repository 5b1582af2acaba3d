"""ONNX -> the same network in int8, for CPUs, calibrated with pictures.

    python -m scripts.steps.quantise --onnx build/onnx --calibration photos --out build/int8

Out: model.onnx (quantise and dequantise nodes around every layer), manifest.json, and reference.npz
(held-out pictures and the float32 network's scores), with which the engine step checks the accuracy
where the network will run.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.base import files
from scripts.base.errors import UserError, guarded
from scripts.steps.manifest import Manifest, differences, pinned
from scripts.steps.progress import step

# One in this many pictures is held out for the check.
HELD_BACK = 4
# More pictures improve neither calibration nor check, and cost time.
MOST_PICTURES = 400
# Fewer calibration pictures are reused, cropped and mirrored, to make this many views.
ENOUGH_VIEWS = 100
CLOSER = (1.0, 1.25, 1.5, 2.0)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--onnx", type=Path, required=True, help="the fp32 directory that export wrote"
    )
    parser.add_argument("--calibration", type=Path, required=True, help="a folder of photos")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    if why_quantise(options.out, options.onnx, options.calibration) is None:
        print(f"{options.out} fits: nothing to quantise")
        return 0
    quantise(options.onnx, options.calibration, options.out)
    return 0


def why_quantise(out: Path, onnx: Path, calibration: Path | None) -> str | None:
    """None if the quantised network fits; otherwise what changed, in one line. Without a folder,
    the earlier calibration is used."""
    made, source = (Manifest.load(folder / "manifest.json") for folder in (out, onnx))
    if made is None or source is None:
        return "nothing quantised yet"
    wanted = _identity(source, calibration)
    if calibration is None:
        wanted["calibration"] = made.identity["calibration"]
    changes = differences(made.identity, wanted)
    model = out / "model.onnx"
    if not changes and not (model.exists() and files.sha256(model) == made.onnx["sha256"]):
        changes = ["model.onnx is not the file that was quantised"]
    return "; ".join(changes) or None


def _identity(source: Manifest, calibration: Path | None) -> dict[str, Any]:
    return source.identity | {
        "precision": "int8",
        "onnx": source.onnx["sha256"],
        "calibration": _digest(calibration) if calibration else None,
        **pinned("onnxruntime"),
    }


def _digest(folder: Path) -> str:
    """A hash of names and sizes: reading hundreds of photos at each start would be slow."""
    names = [f"{p.relative_to(folder)} {p.stat().st_size}" for p in sorted(folder.rglob("*"))]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def quantise(onnx: Path, calibration: Path, out: Path) -> None:
    import numpy as np

    from bundle_serving.pictures import Transform, to_pixels
    from scripts.steps import samples

    source = Manifest.load(onnx / "manifest.json")
    if source is None:
        raise UserError(f"{onnx} has no exported network", "export one: make up")
    how = Transform(**source.transform, decode="full")
    with step("reading the calibration pictures"):
        photos = samples.read(calibration, MOST_PICTURES, "CALIBRATION")
    if len(photos) < 2:
        raise UserError(
            f"CALIBRATION={calibration} contains one picture, but two are needed: "
            "one to calibrate with and one to check with",
            "put a few hundred photos in it",
        )
    learnt = [photo for number, photo in enumerate(photos) if number % HELD_BACK]
    judged = np.stack([to_pixels(photo, how) for photo in photos[::HELD_BACK]])
    shown = list(views(learnt, how))
    if len(learnt) < ENOUGH_VIEWS:
        print(f"  only {len(learnt)} pictures, used in {len(shown)} views; a hundred are better")
    with files.whole_folder(out) as draft:
        with step(f"quantising on {len(shown)} views of {len(learnt)} pictures"):
            _quantise(onnx / "model.onnx", shown, draft / "model.onnx")
        scores = _scores(onnx / "model.onnx", judged)
        np.savez_compressed(draft / "reference.npz", pixels=judged, scores=scores)
        manifest = replace(
            source,
            identity=_identity(source, calibration),
            onnx=source.onnx | {"sha256": files.sha256(draft / "model.onnx")},
            check={"learnt from": len(learnt), "to be judged by": len(judged)},
        )
        (draft / "manifest.json").write_text(manifest.dump())


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


def _quantise(onnx: Path, shown: list[Any], target: Path) -> None:
    import logging

    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Views(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._views = iter(shown)

        def get_next(self) -> dict[str, Any] | None:
            view = next(self._views, None)
            return None if view is None else {"input": view[None]}

    logging.getLogger().setLevel(logging.ERROR)  # its advice does not apply here
    prepared = target.with_name("prepared.onnx")
    quant_pre_process(onnx, prepared, skip_symbolic_shape=True)
    quantize_static(
        prepared,
        target,
        Views(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,  # as the CPUs' instructions expect
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod.MinMax,
    )
    prepared.unlink()


def _scores(onnx: Path, pixels: Any) -> Any:
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["output"], {"input": each[None]})[0] for each in pixels])


if __name__ == "__main__":
    sys.exit(guarded(main))
