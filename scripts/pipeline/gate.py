"""Does a candidate repository, served, answer as PyTorch did? Nothing is published that does not.

    python -m scripts.pipeline.gate --onnx build/onnx --repository build/candidate \
        --network resnet50_trt --config gpu

Starts the server on the candidate, inside the environment that serves, and asks the network for the
scores of the reference pixels and the ensemble for the probabilities of the reference pictures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.health import reason_not_to_trust
from bundle_serving.server_log import first_error
from bundle_serving.start_server import EXIT_TIMEOUT_S, PIPELINE
from scripts.errors import UserError, guarded
from scripts.pipeline.agreement import Agreement, Bound, compare

# The most that any class's probability may differ from PyTorch's in float32: by the arithmetic
# of the engine, and beside that by decoding at reduced scale.
BOUNDS = {"network": Bound(0.05), "ensemble": Bound(0.1)}

START_TIMEOUT_S = 120
# The candidate runs in a container, or beside a server: these are nobody's usual ports.
PORTS = {"http": 18000, "grpc": 18001, "metrics": 18002}
URL = f"http://127.0.0.1:{PORTS['http']}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--onnx", type=Path, required=True)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--config", required=True)
    options = parser.parse_args(argv)
    reference = np.load(options.onnx / "reference.npz")
    with served(options.repository, options.config):
        scores = np.concatenate([network(options.network, p) for p in reference["pixels"]])
        judge("network", compare(reference["scores"], scores))
        pictures = sorted((options.onnx / "pictures").iterdir())
        answers = np.stack([ensemble(path.read_bytes()) for path in pictures])
        expected = reference["scores"][-len(pictures) :]
        # The logarithm of probabilities serves as scores: softmax gives them back.
        judge("ensemble", compare(expected, np.log(np.maximum(answers, 1e-30))))
    return 0


def judge(step: str, agreement: Agreement) -> None:
    print(f"- {step}: {agreement}", flush=True)
    if not agreement.within(BOUNDS[step]):
        raise UserError(
            f"the accuracy gate stops at the {step}: {agreement}, {BOUNDS[step]}",
            "nothing was published; what was served before still is",
        )


@contextmanager
def served(repository: Path, config: str) -> Iterator[None]:
    with tempfile.TemporaryDirectory(dir="/run/triton") as run, tempfile.TemporaryFile("w+") as log:
        ports = [f"--{name}-port={port}" for name, port in PORTS.items()]
        command = [sys.executable, "-m", "bundle_serving.start_server", *ports]
        command += ["--repository", str(repository), "--run-dir", run, "--config-name", config]
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while reason := reason_not_to_trust(URL, PIPELINE):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise UserError(
                        f"the candidate cannot be served: {first_error(log.read()) or reason}",
                        "nothing was published",
                    )
                time.sleep(0.2)
            yield
        finally:
            server.terminate()
            try:
                server.wait(EXIT_TIMEOUT_S + 5)
            except subprocess.TimeoutExpired:
                server.kill()


def network(model: str, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    return _ask(model, pixels.tobytes(), "input", [1, *pixels.shape]).reshape(1, -1)


def ensemble(picture: bytes) -> NDArray[np.float32]:
    return _ask(PIPELINE, picture, "INPUT", [1, len(picture)])


def _ask(model: str, body: bytes, name: str, shape: list[int]) -> NDArray[np.float32]:
    """One question by the standard library: NVIDIA's server image has no client of Triton's."""
    size = {"binary_data_size": len(body)}
    question: dict[str, Any] = {
        "inputs": [{"name": name, "datatype": "UINT8", "shape": shape, "parameters": size}],
        "parameters": {"binary_data_output": True},
    }
    head = json.dumps(question).encode()
    request = urllib.request.Request(
        f"{URL}/v2/models/{model}/infer",
        data=head + body,
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            length = int(answer.headers["Inference-Header-Content-Length"])
            return np.frombuffer(answer.read()[length:], np.float32)
    except urllib.error.HTTPError as refusal:
        said = " ".join(refusal.read().decode(errors="replace").split())
        raise UserError(
            f"the accuracy gate stops: {model} does not answer: {said[:400]}",
            "nothing was published; with PREPROCESS=dali, SAMPLES must be what DALI reads",
        ) from None


if __name__ == "__main__":
    sys.exit(guarded(main))
