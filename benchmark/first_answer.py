"""How long it takes from a fresh clone to a name that a network of one's own gives a picture.

    .venv/bin/python -m benchmark.first_answer [--times 3] [--as onnx pth container] \
        [--image NAME] [--beside]

The network is a ResNet18 of ten classes, untrained, as an ONNX file and as PyTorch's weights. Each
time, clones what is committed here, and runs `make up` and `make classify` there, without Docker.
The packages are downloaded from where pip looks for them: none is cached. With `container`, one
container of the server's image, which is there already, takes the ONNX file; then it is stopped and
started again, with its repository laid out. In the end, the memory of all processes of the server
(PSS); with --beside, also once ResNet50 is served beside it.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import torch

from bundle_client import Client
from bundle_serving.health import reason_not_to_trust
from scripts.artefacts.picture import mug
from scripts.base.errors import UserError, run_guarded
from scripts.base.paths import ROOT
from scripts.base.ports import free_ports
from scripts.measuring.machine import machine
from scripts.stacks.state import State
from scripts.steps.vision import torchvision

ARCH = "resnet18"
LABELS = [f"bird {number}" for number in range(10)]
GIVEN = {"onnx": ["FROM={}/birds.onnx"], "pth": [f"ARCH={ARCH}", "WEIGHTS={}/birds.pth"]}
CONTAINER = "container"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--image", default="triton-bundle-server")
    forms = [*GIVEN, CONTAINER]
    parser.add_argument("--as", nargs="*", default=[*GIVEN], choices=forms, dest="forms")
    parser.add_argument("--beside", action="store_true")
    options = parser.parse_args()
    print(", ".join(map(str, machine(State("local", "", {})).values())))
    with TemporaryDirectory() as folder:
        network = Path(folder)
        write_network(network)
        for form in options.forms * options.times:
            if form == CONTAINER:
                took = ask_container(network, options.image)
            else:
                took = ask_clone(network, form, options.beside)
            print(f"{form}: {took}", flush=True)
    return 0


def write_network(folder: Path) -> None:
    torch.manual_seed(0)
    network = torchvision.models.get_model(ARCH, num_classes=len(LABELS)).eval()
    torch.save(network.state_dict(), folder / "birds.pth")
    how: dict[str, Any] = {"dynamic_shapes": ({0: "batch"},), "verbose": False}
    how["external_data"] = False
    torch.onnx.export(network, (torch.zeros(2, 3, 224, 224),), folder / "birds.onnx", **how)
    (folder / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    mug().save(folder / "photo.jpg")


def ask_clone(network: Path, form: str, beside: bool) -> str:
    names = ("HTTP_PORT", "GRPC_PORT", "METRICS_PORT")
    with TemporaryDirectory(prefix="clone-") as scratch:
        clone = Path(scratch) / "bundle"
        changes = dict(zip(names, map(str, free_ports(3)), strict=True)) | {"FLAVOUR": "local"}
        changes |= {"UV_CACHE_DIR": f"{scratch}/cache", "PIP_CACHE_DIR": f"{scratch}/cache"}

        def make(*words: str) -> str:
            return run("make", "--directory", str(clone), *words, environment=changes)

        began = time.monotonic()
        run("git", "clone", "--quiet", str(ROOT), str(clone))
        try:
            given = [word.format(network) for word in GIVEN[form]]
            make("up", *given, f"LABELS={network}/labels.txt")
            up = time.monotonic() - began
            require_bird(make("classify", f"IMG={network}/photo.jpg"))
            took = time.monotonic() - began
            memory = f"{sum_memory(lambda process: is_of(clone, process))} MB"
            if beside:
                make("up", "MODEL=resnet50", "WEIGHTS=random")
                both = sum_memory(lambda process: is_of(clone, process))
                memory += f"; with ResNet50 beside it {both} MB"
        finally:
            make("down")
    return f"{took:.1f} s, with {up:.1f} s of make up; {memory}"


def is_of(clone: Path, process: psutil.Process) -> bool:
    return str(clone) in " ".join(process.cmdline())


def ask_container(network: Path, image: str) -> str:
    with TemporaryDirectory() as folder:
        for name in ("birds.onnx", "labels.txt"):
            (Path(folder) / name).write_bytes((network / name).read_bytes())
        Path(folder).chmod(0o755)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        mounted = f"{folder}:/model:ro"
        began = time.monotonic()
        words = ("--detach", "--volume", mounted, "--publish", f"{address}:8000", image)
        container = run("docker", "run", *words).strip()
        try:
            took = wait_for_bird(network, address, container, began)
            run("docker", "stop", container)
            began = time.monotonic()
            run("docker", "start", container)
            again = wait_for_bird(network, address, container, began)
            processes = run("docker", "top", container, "-eo", "pid").split()[1:]
            memory = sum_memory(lambda process: str(process.pid) in processes)
        finally:
            run("docker", "rm", "--force", container)
    return f"{took:.1f} s, {again:.1f} s when started again; {memory} MB"


def wait_for_bird(network: Path, address: str, container: str, began: float) -> float:
    while reason := reason_not_to_trust(f"http://{address}", "birds"):
        if time.monotonic() > began + 300:
            raise UserError(f"no answer: {reason}", f"see docker logs {container}")
        time.sleep(0.1)  # or asking takes the processor from it
    with Client(address) as client:
        require_bird(client.classify(network / "photo.jpg").labels[0].label)
    return time.monotonic() - began


def run(*words: str, environment: dict[str, str] | None = None) -> str:
    known = os.environ | (environment or {})
    done = subprocess.run(words, env=known, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{' '.join(words)} failed", (done.stdout + done.stderr)[-500:])
    return done.stdout


def require_bird(answer: str) -> None:
    if not any(label in answer for label in LABELS):
        raise UserError("no bird in the answer", answer)


def sum_memory(is_counted: Callable[[psutil.Process], bool]) -> int:
    """In MB."""
    used = 0
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            used += process.memory_full_info().pss if is_counted(process) else 0
    return round(used / 1e6)


if __name__ == "__main__":
    sys.exit(run_guarded(main))
