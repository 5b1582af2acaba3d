"""Does a candidate repository, served, answer as PyTorch did? Nothing is published that does not.

    python -m scripts.steps.gate --onnx build/versions/1/onnx --repository build/candidate \
        --ensemble ensemble_python_resnet50 --network resnet50_trt --config gpu --precision fp16 \
        --run-dir /run/triton --out build/gate.json

Starts the server on the candidate, inside the environment that serves, and asks the network for the
scores of the reference pixels and the ensemble for the probabilities of the reference pictures.
Out: how well they agreed, and the memory that the candidate's models take. A network of another
kind of pipeline is asked alone, by leaving out --ensemble, --int8 and --out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving import over_socket, sockets
from bundle_serving.health import reason_not_to_trust
from bundle_serving.server_log import first_error
from bundle_serving.start_server import is_ngc
from scripts.base import files
from scripts.base.errors import UserError, guarded
from scripts.base.ports import free_ports
from scripts.steps import engine
from scripts.steps.agreement import Agreement, Bound, compare

# The most that any class's probability may differ from PyTorch's in float32, by the arithmetic of
# the network: TensorRT's (which rounds float32 to TF32 where the GPU can), or a CPU's.
BOUNDS = {"fp16": Bound(0.05), "tf32": Bound(0.01)} | engine.BOUNDS
# And what decoding at reduced scale may add.
DECODING = 0.05

DATA_TYPES = {"uint8": "UINT8", "int64": "INT64", "float32": "FP32"}
# Inputs that bear another name in the file than in the graph.
TENSORS = {"pixels": "input"}

# Triton's Python backend now and then aborts the whole server where many processes share a core
# (github.com/triton-inference-server/server/issues/8882). A version that is broken does so again.
STARTS = 2

# Of this server's shared memory, and so in the command line of each of its models.
MARK = f"triton_gate_{os.getpid()}_"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--onnx", type=Path, required=True, help="what export made")
    parser.add_argument("--int8", type=Path, help="what quantise made of it, if that is served")
    parser.add_argument("--precision", choices=BOUNDS, required=True)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--ensemble", help="without it nothing but the network is asked")
    parser.add_argument("--network", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--limit", type=float, default=120, help="seconds until it must answer")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    if options.ensemble:
        prove(options)
    else:
        prove_alone(options)
    return 0


def prove_alone(options: argparse.Namespace) -> None:
    asked = references(options.onnx)
    with served(options, options.network, why_not_ready) as url:
        answers = [ask(url, options.network, inputs) for inputs, _ in asked]
    scores = np.concatenate([expected for _, expected in asked])
    agreement = compare(scores, np.concatenate(answers))
    judge("network", agreement, BOUNDS[options.precision])


def references(made: Path) -> list[tuple[dict[str, NDArray[Any]], NDArray[np.float32]]]:
    """What an export kept: inputs by their names, and PyTorch's scores."""
    found = []
    for path in sorted(made.glob("reference*.npz")):
        kept: dict[str, NDArray[Any]] = dict(np.load(path))
        scores = kept.pop("scores")
        found.append(({TENSORS.get(name, name): each for name, each in kept.items()}, scores))
    return found


def prove(options: argparse.Namespace) -> None:
    reference = np.load(options.onnx / "reference.npz")
    judged = np.load(options.int8 / "reference.npz") if options.int8 else reference
    pictures = sorted((options.onnx / "pictures").iterdir())
    expected = reference["scores"][-len(pictures) :]
    bound = BOUNDS[options.precision]
    with served(options, options.ensemble, reason_not_to_trust) as url:
        scores = [ask(url, options.network, {"input": each[None]}) for each in judged["pixels"]]
        judge("network", compare(judged["scores"], np.concatenate(scores)), bound)
        shown = [np.fromfile(path, np.uint8)[None] for path in pictures]
        answers = np.concatenate([ask(url, options.ensemble, {"INPUT": each}) for each in shown])
        # The logarithm of probabilities serves as scores: softmax gives them back.
        agreement = compare(expected, np.log(np.maximum(answers, 1e-30)))
        judge("ensemble", agreement, for_the_ensemble(bound, len(pictures)))
        memory = memory_of_models()
    if options.out:
        files.write(options.out, json.dumps({"memory": memory}) + "\n")


def for_the_ensemble(bound: Bound, pictures: int) -> Bound:
    """Where not every picture must keep its label, one may lose it however few there are."""
    top1 = 1.0 if bound.top1 == 1 else min(bound.top1, 1 - 1 / pictures)
    return Bound(bound.difference + DECODING, top1)


def judge(step: str, agreement: Agreement, bound: Bound) -> None:
    print(f"- {step}: {agreement}", flush=True)
    if not agreement.within(bound):
        raise UserError(
            f"the accuracy gate stops at the {step}: {agreement}, {bound}",
            "nothing was published; what was served before still is",
        )


@contextmanager
def served(
    options: argparse.Namespace, model: str, reason_to_wait: Callable[[str, str], str | None]
) -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(dir=options.run_dir) as run,
        tempfile.TemporaryFile("w+") as log,
    ):
        url, listens = _where(Path(run))
        command = [sys.executable, "-m", "bundle_serving.start_server", "--shm-prefix", MARK]
        command += ["--repository", str(options.repository), "--load-model", model]
        command += ["--run-dir", run, "--config-name", options.config, *listens]
        server, starts = _start(command, log), 1
        try:
            deadline = time.monotonic() + options.limit
            while reason := reason_to_wait(url, model):
                if (server.poll() or 0) < 0 and starts < STARTS:
                    _end(server)
                    server, starts = _start(command, log), starts + 1
                    deadline = time.monotonic() + options.limit
                elif server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    said = _why_it_ended(log.read(), server.returncode)
                    if server.returncode is None:
                        said = f"no answer within {options.limit:.0f} s ({reason})"
                    raise UserError(
                        f"the candidate cannot be served: {said}",
                        "what was served before still is; mend it, and publish it again",
                    )
                time.sleep(0.2)
            yield url
        finally:
            _end(server)
            if not is_ngc():
                shutil.rmtree(sockets.folder(Path(run)))  # where it does not lie in the run folder


def _where(run: Path) -> tuple[str, list[str]]:
    """Where it is asked, and how it is told so: NVIDIA's server is in a container without a
    network, and PyPI's on the bare host, where no other user may send it anything."""
    if is_ngc():
        http, grpc, metrics = (str(port) for port in free_ports(3))
        ports = ["--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]
        return f"http://127.0.0.1:{http}", ports
    socket = sockets.folder(run) / sockets.TRITONS_HTTP
    urllib.request.install_opener(over_socket.opener(socket))
    return "http://candidate", ["--http-socket"]


def _start(command: list[str], log: IO[str]) -> subprocess.Popen[bytes]:
    log.seek(0)
    log.truncate()
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def why_not_ready(url: str, model: str) -> str | None:
    """Of a network, which answers nothing that could be asked without knowing it."""
    try:
        with urllib.request.urlopen(f"{url}/v2/models/{model}/ready", timeout=5):
            return None
    except OSError as fault:
        return str(getattr(fault, "reason", fault))


def _why_it_ended(log: str, code: int | None) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1][:300] if lines else "it said nothing"
    return first_error(log) or f"the server ended with code {code}: {last}"


def _end(server: subprocess.Popen[bytes]) -> None:
    """At once, with all its models: nobody else asks it, and a stop in peace takes four seconds."""
    server.kill()
    server.wait()
    for pid in _models():
        with suppress(ProcessLookupError):  # it ends by itself once it misses its server
            os.kill(pid, 9)
    for region in Path("/dev/shm").glob(f"{MARK}*"):
        region.unlink(missing_ok=True)


def memory_of_models() -> int:
    """Bytes of the processes that the models run in; what they share is counted once."""
    total = 0
    for pid in _models():
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in rollup.splitlines() if "Pss:" in line)
    return total * 1024


def _models() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:  # it has just ended
            continue
        if b"triton_python_backend_stub" in command and MARK.encode() in command:
            found.append(int(path.parent.name))
    return found


def ask(url: str, model: str, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """One batch, by the standard library: NVIDIA's server image has no client of Triton's."""
    question: dict[str, Any] = {
        "inputs": [
            {
                "name": name,
                "datatype": DATA_TYPES[str(each.dtype)],
                "shape": each.shape,
                "parameters": {"binary_data_size": each.nbytes},
            }
            for name, each in inputs.items()
        ],
        "parameters": {"binary_data_output": True},
    }
    head, body = json.dumps(question).encode(), b"".join(map(np.ndarray.tobytes, inputs.values()))
    batch = len(next(iter(inputs.values())))
    request = urllib.request.Request(
        f"{url}/v2/models/{model}/infer",
        data=head + body,
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            length = int(answer.headers["Inference-Header-Content-Length"])
            return np.frombuffer(answer.read()[length:], np.float32).reshape(batch, -1)
    except urllib.error.HTTPError as refusal:
        said = " ".join(refusal.read().decode(errors="replace").split())
        raise UserError(
            f"the accuracy gate stops: {model} does not answer: {said[:400]}",
            "nothing was published; with PREPROCESS=dali, SAMPLES must be what DALI reads",
        ) from None


if __name__ == "__main__":
    sys.exit(guarded(main))
