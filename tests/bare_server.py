"""tritonserver itself with one model in Python: without the door, the keeper and pipelines."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bundle_serving.process import sockets
from bundle_serving.process.main_pipeline import DEFAULT as MODEL
from bundle_serving.protocol.over_socket import AtSocket
from tests.project import ROOT, wait_until


class BareServer:
    def __init__(self, run_dir: Path, log: Path) -> None:
        self._at = AtSocket(socket=sockets.folder(run_dir) / sockets.TRITONS_HTTP)
        self.log = log

    def is_ready(self) -> bool:
        try:
            about = urllib.request.Request(f"http://server/v2/models/{MODEL}/ready")
            with self._at.open(about, timeout=60):
                return True
        except OSError:
            return False

    def infer(self, shape: tuple[int, ...], numbers: list[float]) -> list[float]:
        tensor = {"name": "INPUT_0", "datatype": "FP32", "shape": shape, "data": numbers}
        (output,) = self._ask("infer", {"inputs": [tensor]})["outputs"]
        return list(output["data"])

    def computed_s(self) -> float:
        """All batches; inference_stats have a batch's time for each request in it."""
        (about,) = self._ask("stats")["model_stats"]
        return sum(int(each["compute_infer"]["ns"]) for each in about["batch_stats"]) / 1e9

    def _ask(self, what: str, question: object = None) -> dict[str, Any]:
        body = json.dumps(question).encode() if question else None
        asked = urllib.request.Request(f"http://server/v2/models/{MODEL}/{what}", body)
        with self._at.open(asked, timeout=60) as answered:
            return dict(json.load(answered))


@contextmanager
def bare_server(folder: Path, config: str, program: str) -> Iterator[BareServer]:
    version = folder / "models" / MODEL / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(program)
    (version.parent / "config.pbtxt").write_text(config)
    run_dir = folder / "run"
    command = [sys.executable, "-m", "bundle_serving.process.start_server", "--http-socket"]
    command += ["--repository", str(version.parents[1]), "--run-dir", str(run_dir)]
    server = BareServer(run_dir, folder / "log")
    with server.log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
    try:
        wait_until(lambda: process.poll() is not None or server.is_ready(), "the server")
        assert process.poll() is None, server.log.read_text()
        yield server
    finally:
        process.terminate()
        process.wait()
