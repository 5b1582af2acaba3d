"""Where the processor time of a picture goes, by process, library and system call: a table, and a
flame graph. With Debian's linux-perf, as root.

    make up ARCH=mobilenet_v2
    .venv/bin/python -m benchmark.flames photo.jpg flames.svg [--clients 4] [--seconds 20]

Of the server of plain processes that runs, asked over HTTP from here.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmark.flames.graph import Stack, draw, fold
from benchmark.load import Question, infer_path, measure, over_http, processes_of
from benchmark.scale import table
from scripts.base.errors import UserError, run_guarded
from scripts.measuring.machine import machine
from scripts.server.running import ensure_server

A_SECOND = 997  # samples; a prime number, so that nothing is in step with it
WARM_UP_S = 2
NAMES = {
    "bundle_door": "the door's HTTP service",
    "bundle_keeper": "keeper",
    "envoy": "Envoy",
    "tritonserver": "Triton",
    "triton_python_backend_stub": "the network's process",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("svg", type=Path)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args(argv)
    if not options.picture.is_file():
        parser.error(f"{options.picture} is no file; name a JPEG of the usual size")
    if not shutil.which("perf"):
        parser.error("perf is missing: apt-get install linux-perf")
    up = ensure_server()
    picture = options.picture.read_bytes()
    asked = Question("the server", over_http(str(up.http), infer_path()), [picture])
    measure(asked, options.clients, WARM_UP_S)
    names = {each.pid: name_of(each) for each in processes_of(str(up.http))}
    names[os.getpid()] = "client"
    with TemporaryDirectory() as scratch:
        samples = Path(scratch, "samples")
        recording = ["perf", "record", "--event=cpu-clock", f"--freq={A_SECOND}", "-g"]
        recording += [f"--pid={','.join(map(str, names))}", f"--output={samples}"]
        with subprocess.Popen(recording, stderr=subprocess.PIPE, text=True) as perf:
            found = measure(asked, options.clients, options.seconds)
            perf.terminate()
            said = perf.communicate()[1]
        read = ["perf", "script", "--fields=pid,ip,sym,dso", f"--input={samples}"]
        script = subprocess.run(read, capture_output=True, text=True)
    if script.returncode:
        raise UserError(f"perf recorded nothing: {said.strip()[-200:]}", "as root, with linux-perf")
    stacks, requests = fold(script.stdout, names), found.answered
    here = machine(up)
    title = (
        f"{found.images_per_second:.0f} pictures a second, {options.clients} at a time, on "
        f"{here['cores']} cores of an {here['processor']}"
    )
    options.svg.write_text(draw(stacks, title, requests, 1 / A_SECOND))
    print(title)
    print(list_largest(stacks, requests))
    return 0


def name_of(process: psutil.Process) -> str:
    words = [Path(word).name for word in process.cmdline()]
    return next((NAMES[word] for word in words if word in NAMES), "others")


def list_largest(stacks: Mapping[Stack, int], requests: int, most: int = 40) -> str:
    """By process, library and, where there is one, the system call."""
    found: Counter[Stack] = Counter()
    for stack, count in stacks.items():
        found[stack[:1]] += count
        found[stack[:-1] if len(stack) > 2 else stack] += count
    rows = [
        (" / ".join(stack), f"{1000 * count / A_SECOND / requests:.2f}")
        for stack, count in sorted(found.items(), key=lambda each: -each[1])[:most]
    ]
    return table(("where", "ms a picture"), rows)


if __name__ == "__main__":
    sys.exit(run_guarded(main))
