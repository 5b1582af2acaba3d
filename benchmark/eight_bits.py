"""What int8 wins and costs, with ever less of the network in it, and with other calibrations.

    python -m benchmark.eight_bits --onnx build/cache/ensemble_python_resnet50/onnx \
        --calibration photos [--methods Percentile Entropy]

Judged on the photos that are held back; timed in alternating rounds with float32 and, where the
processor has it, bfloat16: the processor time of one thread, which depends little on what else the
machine does.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationMethod

from benchmark.decoding import time_ways
from bundle_serving.agreement import Bound
from bundle_serving.openvino_engine import Engine, has_bf16
from bundle_serving.pictures import Transform, to_pixels
from scripts.artefacts import samples
from scripts.artefacts.manifest import Manifest
from scripts.base.errors import run_guarded
from scripts.measuring.confidence import Estimate
from scripts.steps import engine, quantise
from scripts.steps.eight_bits import Quantiser
from scripts.steps.quantise import Asked

# Of pictures, in a round.
TIMED = 20


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--onnx", type=Path, required=True)
    add("--calibration", type=Path, required=True)
    add("--methods", nargs="*", default=[], choices=["Percentile", "Entropy"])
    add("--rounds", type=int, default=15)
    options = parser.parse_args(argv)
    network = options.onnx / "model.onnx"
    how = Transform(**Manifest.of_export(options.onnx).transform, decode="full")
    photos = samples.read(options.calibration, quantise.MOST_PICTURES, "CALIBRATION")
    held_back, learnt = quantise.divide_photos(photos)
    pixels = np.stack([to_pixels(photo, how) for photo in held_back])
    scores = engine.scores(network, pixels, "fp32")
    asked = Asked(pixels, scores, engine.answers(options.onnx), Bound(1))
    print(f"{len(learnt)} photos to calibrate with, {len(pixels)} to judge by")
    others = ["fp32", "bf16"] if has_bf16() else ["fp32"]
    speeds = "".join(f"times as fast as {each:7}" for each in others)
    print(f"calibration  not in int8     {speeds}same label  or near  largest")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "int8.onnx"
        views = list(quantise.views(learnt, how))
        for name in ("MinMax", *options.methods):
            between = Path(folder) / name
            between.mkdir()
            quantiser = Quantiser(network, views, between, CalibrationMethod[name])
            for kept in mixtures(quantiser, asked, target) if name == "MinMax" else [[]]:
                quantiser.write(target, kept)
                found = f"{len(kept)} of {len(quantiser.layers)}"
                speed = ratios(network, others, target, pixels, options.rounds)
                print(f"{name:12} {found:15} {describe_result(asked, target, speed)}", flush=True)
    return 0


def mixtures(quantiser: Quantiser, asked: Asked, target: Path) -> Iterator[list[str]]:
    kept: list[str] = []
    yield kept
    for part in quantise.by_harm(quantiser, asked, target)[: quantise.PARTS // 2]:
        kept = [*kept, *part]
        yield kept


def describe_result(asked: Asked, network: Path, speeds: list[Estimate]) -> str:
    same = (engine.scores(network, asked.pixels).argmax(1) == asked.scores.argmax(1)).mean()
    agreement = asked.agreement(network)
    near = agreement.top1_equal / agreement.pictures
    speed = "".join(f"{each!s:24}" for each in speeds)
    return f"{speed}{same:9.1%} {near:9.1%}  {agreement.max_difference:6.3f}"


def ratios(
    network: Path, others: list[str], int8: Path, pixels: NDArray[np.uint8], rounds: int
) -> list[Estimate]:
    """How many times as fast int8 is as each of the others."""
    engines = [Engine(int8, "int8", threads=1)]
    engines += [Engine(network, each, threads=1) for each in others]

    def compute(engine: Engine) -> None:
        for picture in pixels[:TIMED]:
            engine.only_output({"input": picture[None]})

    seconds = time_ways([partial(compute, each) for each in engines], rounds)
    return [Estimate.ratio(taken, seconds[0]) for taken in seconds[1:]]


if __name__ == "__main__":
    sys.exit(run_guarded(main))
