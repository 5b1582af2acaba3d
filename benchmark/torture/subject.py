"""A server that is harmed: its processes, what they hold, and whether it is whole."""

import http.client
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmark.torture.pictures import good
from benchmark.torture.requests import RAW, Target
from bundle_serving.health import PICTURE as WHITE
from bundle_serving.process import processes
from bundle_serving.process.main_pipeline import DEFAULT
from bundle_serving.protocol.kserve import pb

ANSWER_S = 60
# More than the instances of any of its models, which take turns.
TURNS = 8
PICTURE = good()
INPUT = "INPUT"
PARTS = ("server", "door", "envoy", "keeper")
NOT_RUNNING = psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE


@dataclass
class Subject:
    root: int  # the process that started all others, or has taken its place
    http: str
    grpc: str
    pipeline: str = DEFAULT
    # Which a guard that was killed has left; they are nobody's.
    left: list[psutil.Process] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of HTTP, for a socket."""
        host, _, port = self.http.rpartition(":")
        return host, int(port)

    def family(self) -> list[psutil.Process]:
        root = psutil.Process(self.root)
        left = (each for each in self.left if each.is_running())
        return [*{root, *root.children(recursive=True), *left}]

    def running(self) -> dict[str, list[psutil.Process]]:
        """Those that could compute if they were asked, by their kind."""
        found: dict[str, list[psutil.Process]] = {}
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                name = kind(process)
                if name and process.status() not in NOT_RUNNING:
                    found.setdefault(name, []).append(process)
        return found

    def numbers(self) -> dict[str, int]:
        return {name: len(processes) for name, processes in self.running().items()}

    def expected_processes(self) -> dict[str, int]:
        """The numbers that these kinds should have, by the models' configs: processes may be too
        few just now, or too many while a reloaded model's old ones end."""
        found = {name: self._instances(name) for name in self.numbers() if name not in PARTS}
        return {name: count for name, count in found.items() if count} | dict.fromkeys(PARTS, 1)

    def _instances(self, model: str) -> int:
        """0 if it is being unloaded."""
        try:
            with urllib.request.urlopen(
                f"http://{self.http}/v2/models/{model}/config", timeout=ANSWER_S
            ) as answer:
                return sum(group["count"] for group in json.load(answer)["instance_group"])
        except urllib.error.HTTPError:
            return 0

    def memory(self) -> int:
        """Bytes; what processes share is counted once."""
        return sum(map(_memory, self.family()))

    def status(self, path: str, body: bytes | None = None, **headers: str) -> int:
        """0 where there was no answer."""
        connection = http.client.HTTPConnection(self.http, timeout=ANSWER_S)
        try:
            connection.request("GET" if body is None else "POST", f"/v2{path}", body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def find_input(self, pipeline: str) -> str | None:
        """Its name; None where the pipeline is not loaded."""
        try:
            address = f"http://{self.http}/v2/models/{pipeline}"
            with urllib.request.urlopen(address, timeout=ANSWER_S) as answer:
                return str(json.load(answer)["inputs"][0]["name"])
        except urllib.error.HTTPError:
            return None

    def ask_picture(self, picture: bytes = PICTURE) -> int:
        return self.status(f"/models/{self.pipeline}/infer", picture, **RAW)

    def target(self) -> Target:
        """To be attacked: the pipeline, by an input that it answers."""
        tensor = {"name": INPUT, "datatype": "UINT8", "shape": [1, len(WHITE)]}
        return Target(self.pipeline, tensor | {"data": list(WHITE)}, WHITE)

    def message(self, picture: bytes) -> Any:
        """A question over gRPC."""
        asked = pb.ModelInferRequest(model_name=self.pipeline, raw_input_contents=[picture])
        asked.inputs.add(name=INPUT, datatype="UINT8", shape=[1, len(picture)])
        return asked

    def is_whole(self, before: Mapping[str, int]) -> bool:
        """Every process is there, and each instance answers when its turn comes."""
        if self.numbers() != before or self.status("/health/ready") != 200:
            return False
        return all(self.ask_picture() == 200 for _ in range(TURNS))

    def until_whole(self, before: Mapping[str, int], seconds: float) -> float | None:
        """How many it took; None where they were not enough."""
        began = time.monotonic()
        while not self.is_whole(before):
            if time.monotonic() > began + seconds:
                return None
            time.sleep(0.1)
        return time.monotonic() - began


def kind(process: psutil.Process) -> str | None:
    """A model's name, or what else a process of the server's is."""
    words = process.cmdline()
    if not words:
        return None
    seen = processes.Process(process.pid, 0, tuple(words))
    if seen.instance:
        return seen.instance[0].removesuffix("_0")
    if words[0].endswith("tritonserver"):
        return "server"
    if "envoy" in Path(words[0]).name:
        return "envoy"
    if "bundle_keeper" in words and "bundle_keeper.afresh" not in words:
        return "keeper"
    return "door" if "bundle_door" in words else None


def stands_still(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def harm(process: psutil.Process, how: signal.Signals) -> None:
    """Until it is seen to have happened."""
    process.send_signal(how)
    with suppress(psutil.NoSuchProcess):
        while how == signal.SIGKILL and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)


def _memory(process: psutil.Process) -> int:
    try:
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except OSError:  # ended meanwhile
        pass
    return 0
