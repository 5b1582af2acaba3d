"""What further processes of the door's HTTP service are worth: requests a second, and processor
time a request, of a model that only counts bytes.

    python -m benchmark.processes --processes 1 2

Raw bodies, and the same bytes as numbers in JSON, which keep the HTTP service busy. The clients are
on the same cores. In alternating rounds, each number of processes with a server of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from benchmark.load import RAW, Question, measure, over_http
from bundle_door.settings import PROCESSES
from bundle_serving.process import keeper_notes
from scripts.base.ports import free_ports

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
PATH = "/v2/models/count/infer"
READY_S, POLL_S = 60, 0.1
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
def serve(processes: int) -> Iterator[tuple[str, psutil.Process]]:
    """The address, and the keeper."""
    with tempfile.TemporaryDirectory() as name:
        folder, ports = Path(name), free_ports(3)
        (folder / "models" / "count" / "1").mkdir(parents=True)
        (folder / "models" / "count" / "config.pbtxt").write_text(CONFIG)
        (folder / "models" / "count" / "1" / "model.py").write_text(MODEL)
        (folder / "key").write_text("0123456789abcdef-of-the-benchmark")
        options = {
            "load-model": "count",
            "run-dir": folder / "run",
            "repository": folder / "models",
            "admin-key-file": folder / "key",
            "shm-prefix": f"processes{os.getpid()}_{processes}_",
            **dict(zip(("http-port", "grpc-port", "metrics-port"), ports, strict=True)),
        }
        command = [sys.executable, "-m", "bundle_keeper"]
        command += [f"--{option}={value}" for option, value in options.items()]
        environment = os.environ | {PROCESSES: str(processes)}
        with (folder / "log").open("wb") as log:
            keeper = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            give_up = time.monotonic() + READY_S
            while not (keeper_notes.readiness(folder / "run") or (False,))[0]:
                if keeper.poll() is not None or time.monotonic() > give_up:
                    raise SystemExit(f"error: no server: {(folder / 'log').read_text()[-2000:]}")
                time.sleep(POLL_S)
            yield f"localhost:{ports[0]}", psutil.Process(keeper.pid)
        finally:
            keeper.terminate()
            keeper.wait()


def sum_cpu_ms(keeper: psutil.Process) -> dict[str, float]:
    """Milliseconds of processor time so far."""
    found: dict[str, float] = defaultdict(float)
    for process in (keeper, *keeper.children(recursive=True)):
        times = process.cpu_times()
        found[name_of(process.cmdline())] += 1e3 * (times.user + times.system)
    return found


def name_of(command: Sequence[str]) -> str:
    number = next((word for word in command if word.startswith("--process=")), None)
    if number:
        return f"HTTP service {number.removeprefix('--process=')}"
    return next((NAMES[key] for word in command if (key := Path(word).name) in NAMES), "other")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
        servers = {each: stack.enter_context(serve(each)) for each in options.processes}
        for _ in range(options.rounds):
            for what, (body, headers) in bodies(options.size).items():
                for count, (address, keeper) in servers.items():
                    question = Question(what, over_http(address, PATH, headers), [body])
                    before = sum_cpu_ms(keeper)
                    took = measure(question, options.concurrency, options.seconds)
                    rates[what, count].append(took.images_per_second)
                    for name, now in sum_cpu_ms(keeper).items():
                        share = (now - before.get(name, 0)) / len(took.latencies)
                        costs[what, count][name].append(share)
    for (what, count), found in rates.items():
        shown = ", ".join(
            f"{name} {statistics.median(cost):.2f}"
            for name, cost in sorted(costs[what, count].items())
        )
        print(f"{what:14} {count} processes {statistics.median(found):7.0f}/s", end=" ")
        print(f"({min(found):.0f} to {max(found):.0f}); ms a request: {shown}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
