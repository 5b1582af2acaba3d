"""What pages of 2 MB win for a network, in processes with the memory of the server's own.

    .venv/bin/python -m benchmark.pages [--network model.onnx] [--precision bf16]

Of the network that is served, or of a file. Processes with and without them, in turns: the
processor time of one thread, for a picture in batches of one, two and four.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

from bundle_serving.openvino_engine import HINTS, Engine
from bundle_serving.process.start_server import REUSED
from scripts.base.errors import run_guarded
from scripts.measuring.confidence import Estimate

BATCHES = (1, 2, 4)
ROUNDS = 5
# In each process; the first ones count for nothing.
TIMES, WARM_UP = 30, 5
PAGES = "GLIBC_TUNABLES"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", type=Path, help="that takes 224x224 pixels")
    parser.add_argument("--precision", choices=HINTS, default="bf16")
    parser.add_argument("--one-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    network = options.network or find_served_network()
    if not network.is_file():
        parser.error(f"{network} is no file; make up exports a network")
    if options.one_process:
        print(json.dumps(milliseconds(network, options.precision)))
        return 0
    words = ["--network", str(network), "--precision", options.precision]
    small, large = [], []
    for _ in range(ROUNDS):
        small.append(in_a_process(words, REUSED | {PAGES: ""}))
        large.append(in_a_process(words, REUSED))
    print("batch  ms a picture  in pages of 2 MB  times as fast")
    for column, batch in enumerate(BATCHES):
        before, after = ([each[column] for each in found] for found in (small, large))
        figures = f"{median(before):12.1f} {median(after):17.1f}"
        print(f"{batch:5} {figures}  {Estimate.ratio(before, after)}")
    return 0


def find_served_network() -> Path:
    # Not in the processes that are measured: it takes memory.
    from benchmark.contenders import find_network
    from scripts.server.served import find_served_version

    return find_network(find_served_version())


def in_a_process(words: list[str], memory: dict[str, str]) -> list[float]:
    command = [sys.executable, "-m", "benchmark.pages", "--one-process", *words]
    done = subprocess.run(
        command, env=os.environ | memory, stdout=subprocess.PIPE, text=True, check=True
    )
    found: list[float] = json.loads(done.stdout)
    return found


def milliseconds(network: Path, precision: str) -> list[float]:
    """Of each size of a batch, for one picture."""
    engine, found = Engine(network, precision, threads=1), []
    for batch in BATCHES:
        pixels = np.random.default_rng(0).integers(0, 256, (batch, 3, 224, 224), dtype=np.uint8)
        taken = []
        for _ in range(WARM_UP + TIMES):
            began = time.process_time()
            engine.only_output({"input": pixels})
            taken.append(1000 * (time.process_time() - began) / batch)
        found.append(median(taken[WARM_UP:]))
    return found


if __name__ == "__main__":
    sys.exit(run_guarded(main))
