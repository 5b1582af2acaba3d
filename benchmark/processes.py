"""What further processes of the door's HTTP service are worth: requests a second, and processor
time a request, of a model that only counts bytes.

    python -m benchmark.processes --processes 1 2

Raw bodies, and the same bytes as numbers in JSON, which keep the HTTP service busy. The clients are
on the same cores. In alternating rounds, each number of processes with a server of its own.
"""

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmark.load import RAW, Question, infer_path, measure_cost, over_http, processes_of
from bundle_door.settings import PROCESSES
from scripts.base.errors import run_guarded
from scripts.stacks import temporary

CONFIG = """
name: "count" backend: "python" max_batch_size: 16
input [ { name: "INPUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching { }
"""
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

def count(request):
    rows, size = pb_utils.get_input_tensor_by_name(request, "INPUT").shape()
    return pb_utils.Tensor("OUTPUT", np.full((rows, 1), size, np.int32))

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([count(each)]) for each in requests]
"""
# What a process is called here, by a word of its command.
NAMES = {
    "envoy": "Envoy",
    "tritonserver": "Triton",
    "triton_python_backend_stub": "the model",
    "bundle_keeper": "the keeper",
    "bundle_keeper.afresh": "the keeper",
}


def bodies(size: int) -> dict[str, tuple[bytes, dict[str, str]]]:
    numbers = ",".join("255" for _ in range(size))
    tensor = f'{{"name":"INPUT","datatype":"UINT8","shape":[1,{size}],"data":[{numbers}]}}'
    return {
        f"{size / 1000:g} kB, raw": (bytes(size), RAW),
        f"{size / 1000:g} kB as JSON": (f'{{"inputs":[{tensor}]}}'.encode(), {}),
    }


@contextmanager
def serve(processes: int, folder: Path) -> Iterator[str]:
    """The address."""
    (folder / "models" / "count" / "1").mkdir(parents=True, exist_ok=True)
    (folder / "models" / "count" / "config.pbtxt").write_text(CONFIG)
    (folder / "models" / "count" / "1" / "model.py").write_text(MODEL)
    name, environment = f"the server of {processes}", {PROCESSES: str(processes)}
    log = folder / f"{processes}.log"
    with temporary.triton(name, folder / "models", log, "count", environment) as (address, _):
        yield address


def name_of(process: psutil.Process) -> str:
    command = process.cmdline()
    number = next((word for word in command if word.startswith("--process=")), None)
    if number:
        return f"HTTP service {number.removeprefix('--process=')}"
    return next((NAMES[key] for word in command if (key := Path(word).name) in NAMES), "other")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args(argv)
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    costs: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    print(f"load before: {os.getloadavg()[0]:.1f}, cores: {len(os.sched_getaffinity(0))}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        servers = {each: stack.enter_context(serve(each, folder)) for each in options.processes}
        for _ in range(options.rounds):
            for what, (body, headers) in bodies(options.size).items():
                for count, address in servers.items():
                    question = Question(
                        what, over_http(address, infer_path("count"), headers), [body]
                    )
                    find = partial(processes_of, address)
                    took, spent = measure_cost(
                        question, options.concurrency, options.seconds, find, name_of
                    )
                    rates[what, count].append(took.images_per_second)
                    for name, cost in spent.items():
                        costs[what, count][name].append(cost)
    for (what, count), found in rates.items():
        shown = ", ".join(
            f"{name} {statistics.median(cost):.2f}"
            for name, cost in sorted(costs[what, count].items())
        )
        print(f"{what:14} {count} processes {statistics.median(found):7.0f}/s", end=" ")
        print(f"({min(found):.0f} to {max(found):.0f}); ms a request: {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(run_guarded(main))
