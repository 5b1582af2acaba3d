"""NVIDIA's perf_analyzer: where it is, how to call it, how to read its output. It runs on this
machine or, with the gpu flavour, in a container of NVIDIA's SDK image."""

import base64
import csv
import ctypes
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bundle_serving import CACHE
from bundle_serving.address import Address
from bundle_serving.process import guard
from scripts import bootstrap
from scripts.base.errors import UserError
from scripts.base.paths import REQUIREMENTS, VENV
from scripts.measuring.measurement import Sample
from scripts.measuring.photos import Inputs
from scripts.measuring.workload import Configuration
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, flavour, state
from scripts.stacks.state import State

IN_THE_SDK = "/opt/perf_analyzer"  # docker/sdk/gpu.Dockerfile
BINARY = VENV / "perf_analyzer" / "bin" / "perf_analyzer"
LIBB64 = "libb64.so.0d"
LIBB64_REMEDY = "apt-get install libb64-0d"

# perf_analyzer reports the mean of its last three windows once they agree within a tolerance. Our
# rounds check that over a longer time, so it gets a tolerance that any three windows meet.
WINDOWS = 3
CONTENT = ["--stability-percentage", "999", "--max-trials", str(WINDOWS)]

# As many sequences at once as there are requests: each has one at a time.
SEQUENCES = ["--sequence-length", "20"]

# The same pictures come again and again, and none is to be answered from memory.
COMPUTED = {
    "http": ["-H", "cache-control:no-cache"],
    "grpc": ["--request-parameter", f"{CACHE}:false:bool"],
}

# Its message for a window without any answer; and how long a run is then retried at most.
TOO_SHORT = "No valid requests recorded"
TELLS = re.compile(f"error:|{TOO_SHORT}")
LONGEST_S = 20

# Besides the measurement itself: reading the inputs, and waiting for the last requests.
LONGEST_EXTRA_S = 60

# A program, a folder that it may read and write in, and how long it may take -> its output.
Ran = subprocess.CompletedProcess[str]
Run = Callable[[list[str], Path, float | None], Ran]


class Failed(Exception):
    """perf_analyzer measured nothing; the message is its reason."""


class Unexplained(Failed):
    """It ended without a reason, by a signal say: that happens on a busy machine, but not twice."""


@dataclass(frozen=True)
class PerfAnalyzer:
    """The program, on this machine or in the gpu flavour's SDK image."""

    run_program: Run
    command: list[str]
    version: str
    folder: Path  # for what it reads and writes
    # The addresses inside the container, if they differ.
    addresses_there: Mapping[Address, Address] = field(default_factory=dict)

    def run(self, configuration: Configuration, seconds: float) -> Sample:
        """Runs longer if a request takes longer than a window."""
        try:
            return self._run(configuration, seconds)
        except Unexplained:
            return self._run(configuration, seconds)
        except Failed as fault:
            if TOO_SHORT not in str(fault) or seconds > LONGEST_S:
                raise
        return self.run(configuration, 4 * seconds)

    def _run(self, configuration: Configuration, seconds: float) -> Sample:
        data = self._data(configuration.inputs, configuration.target.input, configuration.batch)
        report = self.folder / "report.csv"
        report.unlink(missing_ok=True)
        address: Address = getattr(configuration.target, configuration.protocol)
        command = [
            *self.command,
            *("-m", configuration.target.model),
            *("-i", configuration.protocol),
            *("-u", _url(configuration.protocol, self.addresses_there.get(address, address))),
            *(_pass(seconds + LONGEST_EXTRA_S) if address.api_key else ()),
            *(_tls(configuration.protocol, address.certificate) if address.certificate else ()),
            *COMPUTED[configuration.protocol],
            *("-b", str(configuration.batch)),
            *("--concurrency-range", str(configuration.concurrency)),
            *("--input-data", str(data)),
            *("--measurement-interval", str(round(seconds * 1000 / WINDOWS))),
            *CONTENT,
            *(SEQUENCES if configuration.target.in_sequences else ()),
            *("--verbose-csv", "-f", str(report)),
        ]
        try:
            ran = self.run_program(command, self.folder, seconds + LONGEST_EXTRA_S)
        except subprocess.TimeoutExpired:
            raise Failed("no answer in time") from None
        if ran.returncode or not report.exists():
            output = ran.stdout + ran.stderr
            if not TELLS.search(output):
                raise Unexplained(f"exit code {ran.returncode}, after: {reason(output)}")
            raise Failed(reason(output))
        return parse(report.read_text(), ran.stdout)

    def _data(self, inputs: Inputs, name: str, batch: int) -> Path:
        """Written once per kind of input; the pictures of one request are padded to one length."""
        padded = "padded" if batch > 1 else "whole"
        path = self.folder / f"{re.sub(r'[^a-zA-Z0-9]+', '-', inputs.name)}-{name}-{padded}.json"
        if not path.exists():
            path.write_text(input_data(inputs, name, padded=batch > 1))
        return path


def _url(protocol: str, address: Address) -> str:
    return address.url if protocol == "http" and address.certificate else str(address)


def _pass(seconds: float) -> list[str]:
    """Arguments are seen by everybody on this machine, so the key itself is not among them."""
    return ["-H", f"authorization:Bearer {guard.make_pass(admin_key.load(), seconds)}"]


def _tls(protocol: str, certificate: Path) -> list[str]:
    """Over gRPC it compares the certificate's name, and no option names another."""
    if protocol == "grpc":
        return ["--ssl-grpc-use-ssl", "--ssl-grpc-root-certifications-file", str(certificate)]
    return ["--ssl-https-ca-certificates-file", str(certificate), "--ssl-https-verify-host", "0"]


def at_hand(server: State, folder: Path) -> PerfAnalyzer:
    """Ready to measure this server; `folder` takes its files."""
    if server.flavour == "gpu":
        run, addresses = _open_sdk(server)
        version = f"from the sdk image {server.settings_at_start.triton_tag}"
        analyzer = PerfAnalyzer(run, [IN_THE_SDK], version, folder, addresses)
    else:
        require(server.flavour)
        (version,) = re.findall(r"==([\d.]+)", (REQUIREMENTS / "perf_analyzer.txt").read_text())
        analyzer = PerfAnalyzer(_run_here, _find_installed(), version, folder)
    tried = analyzer.run_program([*analyzer.command, "--version"], folder, None)
    if tried.returncode:
        raise UserError(f"perf_analyzer does not run here: {reason(tried.stderr)}", "make doctor")
    return analyzer


def _find_installed() -> list[str]:
    """PyPI's, in the project's environment."""
    bootstrap.ensure("perf_analyzer")
    (cuda_runtime,) = VENV.glob("lib/python*/site-packages/nvidia/cuda_runtime/lib")
    return ["env", f"LD_LIBRARY_PATH={cuda_runtime}", str(BINARY)]


def _run_here(program: list[str], folder: Path, timeout: float | None) -> Ran:
    """With the project's environment."""
    environment = os.environ | {"PATH": f"{VENV / 'bin'}:{os.environ.get('PATH', '')}"}
    return subprocess.run(
        program,
        env=environment,
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
        timeout=timeout,
    )


def _open_sdk(server: State) -> tuple[Run, Mapping[Address, Address]]:
    """A container where the server's ports are held, and its addresses there. Where none runs, on
    this machine's network, on which `make tune` has its own."""
    # The code that talks to Docker takes a third of a second to import.
    from scripts.stacks.gpu import GpuStack

    stack = GpuStack(server.settings_at_start)
    service, there = "sdk-outside", dict[Address, Address]()
    if stack.alive("ports"):
        service = "sdk"
        for address, port in ((server.http, 8000), (server.grpc, 8001)):
            there[address] = replace(address, host="127.0.0.1", port=port)
    stack.images.build("sdk", announced=not stack.images.has("sdk"))

    def run(program: list[str], folder: Path, timeout: float | None) -> Ran:
        """As on the host: the folder and the certificate are mounted under the same names, and the
        container runs as the calling user."""
        # Without capabilities, even root can write only to its own files.
        os.chown(folder, os.getuid(), os.getgid())
        options = ["-T", "--user", f"{os.getuid()}:{os.getgid()}", "--volume", f"{folder}:{folder}"]
        if read := server.http.certificate:
            options += ["--volume", f"{read}:{read}:ro"]
        name = f"{stack.project}-sdk-{os.getpid()}"  # others may run at the same time
        words = ("run", "--rm", "--no-deps", "--name", name, *options, service, *program)
        try:
            return stack.compose.run(*words, quiet=True, timeout=timeout)
        finally:
            stack.compose.remove(service, name)  # Ctrl-C or the time limit ends only Compose

    return run, there


def require(name: str) -> None:
    """Checked before anything slow starts; the gpu flavour's image has everything."""
    if name == "gpu":
        return
    if platform.machine() != "x86_64":
        raise UserError(
            f"there is no perf_analyzer for {platform.machine()}",
            "measure on x86-64; .venv/bin/python -m benchmark.soak needs none",
        )
    if not has_libb64():
        raise UserError(f"perf_analyzer needs {LIBB64}, which is missing", LIBB64_REMEDY)


def require_here() -> None:
    """For the server that runs, or would be started."""
    known = state.load()
    require(known.flavour if known else flavour.choose(Settings.load())[0])


def has_libb64() -> bool:
    try:
        ctypes.CDLL(LIBB64)
    except OSError:
        return False
    return True


def input_data(inputs: Inputs, name: str, padded: bool) -> str:
    if inputs.several:
        data = [{n: _tensor(tensor) for n, tensor in sent.items()} for sent in inputs.several]
    elif inputs.texts:
        data = [{name: {"content": [row.decode()], "shape": [1]}} for row in inputs.rows]
    else:
        longest = max(map(len, inputs.rows))
        rows = [row.ljust(longest, b"\0") for row in inputs.rows] if padded else inputs.rows
        data = [{name: _encode(row, list(inputs.shape or [len(row)]))} for row in rows]
    return json.dumps({"data": data})


def _tensor(tensor: NDArray[Any]) -> dict[str, Any]:
    shape = list(tensor.shape)
    if tensor.dtype.kind == "S":
        return {"content": [text.decode() for text in tensor.ravel().tolist()], "shape": shape}
    return _encode(tensor.tobytes(), shape)


def _encode(content: bytes, shape: list[int]) -> dict[str, Any]:
    return {"content": {"b64": base64.b64encode(content).decode()}, "shape": shape}


def parse(report: str, output: str) -> Sample:
    """As the clients saw it. Its CSV has everything except the number of requests."""
    (row,) = csv.DictReader(report.splitlines())
    requests = re.search(r"Request count: (\d+)", output)
    return Sample(
        throughput=float(row["Inferences/Second"]),
        mean=float(row["Avg latency"]) / 1000,
        p50=float(row["p50 latency"]) / 1000,
        p95=float(row["p95 latency"]) / 1000,
        p99=float(row["p99 latency"]) / 1000,
        requests=int(requests[1]) if requests else 0,
    )


def reason(output: str) -> str:
    """The line of its output that says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if TELLS.search(line)]
    found = (telling or lines or ["no message"])[0]
    return re.sub(r"^(error:|Thread \[\d+\] had error:) ", "", found)[:300]
