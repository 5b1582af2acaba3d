"""What processor time a picture costs until it is pixels: as it is served, decoded in full, and by
libjpeg-turbo, which scales by eighths where Pillow scales by halves; and as PNG and WebP.

    .venv/bin/python -m benchmark.decoding photo.jpg …

In alternating rounds, on one thread. The difference is the average one between the pixels and those
of a full decode, of 255.
"""

import argparse
import io
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bundle_serving.pictures import Transform, resize_and_crop, to_pixels
from scripts import bootstrap
from scripts.base.errors import run_guarded
from scripts.measuring.confidence import Estimate

SERVED = Transform(resize=256, crop=224)
IN_FULL = Transform(resize=256, crop=224, decode="full")

Pixels = NDArray[np.uint8]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("pictures", nargs="+", type=Path, help="JPEG files")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(argv)
    bootstrap.ensure("decoding")
    print(f"{'picture':20} {'':22} {'ms of the processor':24} {'times as long':22} difference")
    for path in options.pictures:
        ways = ways_to(path.read_bytes())
        seconds = time_ways([*ways.values()], options.rounds)
        exact = ways["in full"]().astype(int)
        for (name, decode), taken in zip(ways.items(), seconds, strict=True):
            cost = Estimate.from_rounds([1e3 * each for each in taken])
            longer = Estimate.ratio(taken, seconds[0])
            apart = np.abs(decode() - exact).mean()
            print(f"{path.name:20} {name:22} {cost!s:24} {longer!s:22} {apart:.2f}")
    return 0


def ways_to(jpeg: bytes) -> dict[str, Callable[[], Pixels]]:
    png, webp = (encode_as(jpeg, kind) for kind in ("PNG", "WEBP"))
    return {
        "as served": lambda: to_pixels(jpeg, SERVED),
        "in full": lambda: to_pixels(jpeg, IN_FULL),
        "libjpeg-turbo, eighths": lambda: by_eighths(jpeg),
        "as PNG": lambda: to_pixels(png, SERVED),
        "as WebP": lambda: to_pixels(webp, SERVED),
    }


def encode_as(jpeg: bytes, kind: str) -> bytes:
    file = io.BytesIO()
    with Image.open(io.BytesIO(jpeg)) as picture:
        picture.save(file, kind)
    return file.getvalue()


def by_eighths(jpeg: bytes) -> Pixels:
    """As few as keep twice what the network needs, as is served; of an upright picture."""
    import simplejpeg

    least = 2 * max(SERVED.target)
    decoded = simplejpeg.decode_jpeg(jpeg, min_height=least, min_width=least)
    pixels = np.asarray(resize_and_crop(Image.fromarray(decoded), SERVED))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def time_ways(ways: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Of the processor, each in every round."""
    seconds: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + 1):
        for decode, taken in zip(ways, seconds, strict=True):
            began = time.process_time()
            decode()
            if number:  # the first is a warm-up
                taken.append(time.process_time() - began)
    return seconds


if __name__ == "__main__":
    sys.exit(run_guarded(main))
