"""The index of `make similar` with many pictures: how long it takes to build, save and load, its
memory, and how fast and how exactly it answers.

    .venv/bin/python -m extensions.similar.index_benchmark [--pictures 100000]

The vectors are drawn: around as many centres as there would be subjects of fifty pictures each.
"""

import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import psutil
from numpy.typing import NDArray

from extensions.similar.indexing import SAVED_EVERY, MadeBy, PictureIndex, Stamp
from scripts.artefacts.exporting import start

DIMENSIONS = 1280  # mobilenet_v2's
OF_A_SUBJECT = 50
SPREAD = 0.8  # of a subject's pictures around their centre, whose length is 1
ASKED, TOP = 200, 10

Vectors = NDArray[np.float32]
T = TypeVar("T")


def main(pictures: int = 100_000) -> None:
    random = np.random.default_rng(0)
    centres = unit(random.standard_normal((-(-pictures // OF_A_SUBJECT), DIMENSIONS)))
    some = (min(SAVED_EVERY, pictures - at) for at in range(0, pictures, SAVED_EVERY))
    rows = np.concatenate([draw_vectors(random, centres, count) for count in some])
    asked = draw_vectors(random, centres, ASKED)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pictures.zip"
        index = build_index(rows)
        time_it("saved", lambda: index.save(path))
        print(f"  its file has {path.stat().st_size / 1e6:.0f} MB")
        del index
        before = memory()
        index = time_it("loaded", lambda: PictureIndex.load(path))
        print(f"  {memory() - before:.0f} MB of memory once loaded")
    answers(index, rows, asked)


def unit(vectors: NDArray[np.float64]) -> Vectors:
    made: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return made


def draw_vectors(random: np.random.Generator, centres: Vectors, count: int) -> Vectors:
    noise = random.standard_normal((count, DIMENSIONS)) * (SPREAD / np.sqrt(DIMENSIONS))
    return unit(centres[random.integers(len(centres), size=count)] + noise)


def build_index(rows: Vectors) -> PictureIndex:
    """As `make index` adds them."""
    index = PictureIndex(MadeBy("drawn", "", DIMENSIONS))
    began, of_processor = time.perf_counter(), time.process_time()
    for begin in range(0, len(rows), SAVED_EVERY):
        some = rows[begin : begin + SAVED_EVERY]
        index.put({str(begin + n): Stamp(0, 0) for n in range(len(some))}, some)
    print(
        f"built of {len(rows)} vectors in {time.perf_counter() - began:.1f} s, "
        f"{time.process_time() - of_processor:.1f} s of processor time"
    )
    return index


def time_it(what: str, do: Callable[[], T]) -> T:
    began = time.perf_counter()
    done = do()
    print(f"{what} in {time.perf_counter() - began:.2f} s")
    return done


def memory() -> float:
    return float(psutil.Process(os.getpid()).memory_info().rss / 1e6)


def answers(index: PictureIndex, rows: Vectors, asked: Vectors) -> None:
    times, exact_times, found, of = [], [], 0, 0
    for vector in asked:
        began = time.perf_counter()
        nearest = {int(path) for _, path in islice(index.alike(vector), TOP)}
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
        likenesses = rows @ vector
        exact = np.argpartition(-likenesses, TOP)[:TOP]
        exact_times.append(time.perf_counter() - began)
        found, of = found + len(nearest & set(exact.tolist())), of + TOP
    p50, p99, longest = np.percentile(times, [50, 99, 100]) * 1e3
    print(f"{ASKED} questions: p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {longest:.2f} ms")
    print(f"  exact search: p50 {np.median(exact_times) * 1e3:.1f} ms")
    print(f"  of the {TOP} most alike, {found / of:.1%} were found")


if __name__ == "__main__":
    start(main)
