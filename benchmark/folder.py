"""A folder of pictures into a file: `make classify IMG=folder OUT=labels.csv` beside a plain loop,
which has no server: decoders and the network in threads of one process, one a core.

    make up ARCH=mobilenet_v2
    .venv/bin/python -m benchmark.folder [--pictures 2000] [--rounds 3] [--images photos]

Both by turns, in one run; `--images` names pictures of yours, which are repeated.
"""

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmark.contenders import alone
from scripts.artefacts.exporting import start
from scripts.base.errors import UserError
from scripts.measuring.confidence import Estimate
from scripts.measuring.machine import machine
from scripts.measuring.photos import read_or_draw
from scripts.server.running import ensure_server


def main(pictures: int = 2000, rounds: int = 3, images: str = "") -> int:
    up = ensure_server()
    if up.settings_at_start.cache_mb:
        raise UserError(
            "the server answers from memory (CACHE_MB), and pictures are repeated here",
            "make up CACHE_MB=",
        )
    contender = alone()

    def loop(folder: Path) -> None:
        with contender.connect() as ask, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for _ in pool.map(lambda picture: ask(picture.read_bytes()), folder.iterdir()):
                pass

    def classify(folder: Path) -> None:
        out = folder.with_name("labels.csv")
        out.unlink(missing_ok=True)
        command = ["make", "--silent", "classify", f"IMG={folder}", f"OUT={out}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise UserError(
                f"make classify failed: {done.stderr.strip()[-300:]}", "see make status"
            )

    print(", ".join(map(str, machine(up).values())))
    for photos in read_or_draw(images):
        with TemporaryDirectory() as scratch:
            folder = Path(scratch, "photos")
            folder.mkdir()
            for number, photo in enumerate(islice(cycle(photos.rows), pictures)):
                (folder / f"{number:06}.jpg").write_bytes(photo)
            print(f"{pictures} pictures, {photos.description}")
            rates = measure({"make classify": classify, "a plain loop": loop}, folder, rounds)
            for name, found in rates.items():
                each = ", ".join(f"{rate:.1f}" for rate in found)
                print(f"  {name}: {median(found):.1f} pictures/s ({each})")
            ours, plain = rates.values()
            print(f"  {Estimate.ratio(ours, plain)} of the plain loop")
    return 0


def measure(
    ways: dict[str, Callable[[Path], None]], folder: Path, rounds: int
) -> dict[str, list[float]]:
    """Pictures a second, in each round."""
    count = sum(1 for _ in folder.iterdir())
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.monotonic()
            way(folder)
            rates[name].append(count / (time.monotonic() - began))
    return rates


if __name__ == "__main__":
    start(main)
