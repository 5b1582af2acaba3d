"""What is compared: how each is started, and how it is asked."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from benchmark.load import RAW, Question
from benchmark.services.usual import SETUP, Setup
from benchmark.textbook import server
from benchmark.textbook.server import HERE
from bundle_serving import PIPELINE
from bundle_serving.health import PICTURE
from scripts.base import files
from scripts.base.ports import free_ports
from scripts.recipes.layout import CPU
from scripts.repository.archive import Version
from scripts.server.served import served_version
from scripts.stacks import temporary

TRITON_PATH = f"/v2/models/{PIPELINE}/infer"


@dataclass(frozen=True)
class Contender:
    """A server that is up."""

    name: str
    address: str
    path: str
    headers: dict[str, str]
    label: Callable[[bytes], str]  # the first one of an answer

    def question(self, pictures: Sequence[bytes]) -> Question:
        return Question(self.address, self.path, self.headers, pictures)

    def first_label(self, picture: bytes) -> str:
        question = self.question([picture])
        connection = question.connect()
        try:
            return self.label(question.ask(connection, picture))
        finally:
            connection.close()

    def reason_to_wait(self) -> str | None:
        """None once a picture is answered."""
        try:
            self.first_label(PICTURE)
        except (OSError, http.client.HTTPException) as fault:
            return str(fault) or type(fault).__name__
        return None


@dataclass(frozen=True)
class Service:
    """One of benchmark/services: the module whose presence says that it can be run, and how."""

    name: str
    package: str
    command: tuple[str, ...]

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None


SERVICES = {
    service.name: service
    for service in (
        Service(
            "fastapi",
            "fastapi",
            (
                *("-m", "uvicorn", "benchmark.services.fastapi_service:app"),
                *("--log-level", "warning", "--workers", "{workers}", "--port", "{port}"),
            ),
        ),
        Service(
            "litserve",
            "litserve",
            ("-m", "benchmark.services.litserve_service", "--port", "{port}"),
        ),
        Service(
            "bentoml",
            "bentoml",
            (
                *("-m", "bentoml", "serve", "benchmark.services.bentoml_service:Service"),
                *("--host", "127.0.0.1", "--port", "{port}"),
            ),
        ),
        Service(
            "mosec",
            "mosec",
            (
                *("-m", "benchmark.services.mosec_service", "--address", "127.0.0.1"),
                *("--log-level", "warning", "--port", "{port}"),
            ),
        ),
    )
}


def triton(name: str, address: str) -> Contender:
    labels = labels_of(served_version())

    def label(answer: bytes) -> str:
        probabilities = np.frombuffer(answer[-4 * len(labels) :], np.float32)
        return labels[int(probabilities.argmax())]

    return Contender(name, address, TRITON_PATH, RAW, label)


@contextmanager
def textbook() -> Iterator[Contender]:
    with server.served() as (address, _):
        yield triton("textbook", address)


@contextmanager
def running(service: Service, setup: Setup) -> Iterator[Contender]:
    setup_file = HERE / "setup.json"
    files.write(setup_file, setup.dump())
    (port,) = free_ports(1)
    words = {"workers": str(setup.workers), "port": str(port)}
    contender = Contender(
        service.name,
        f"127.0.0.1:{port}",
        "/classify",
        {"Content-Type": "image/jpeg"},
        lambda answer: str(json.loads(answer)["label"]),
    )
    with temporary.running(
        f"the {service.name} service",
        [sys.executable, *(word.format(**words) for word in service.command)],
        HERE / "logs" / f"{service.name}.log",
        contender.reason_to_wait,
        {SETUP: str(setup_file)},
    ):
        yield contender


def what_is_served(version: Version, workers: int) -> Setup:
    """The network as the bundle serves it now, for others to serve the same."""
    made = version.workspace
    transform = made.manifest.transform
    return Setup(
        network=str(version.member("resnet50_onnx") / CPU.file),
        precision=made.decision["precision"],
        labels=labels_of(version),
        resize=transform["resize"],
        crop=transform["crop"],
        workers=workers,
    )


def labels_of(version: Version) -> list[str]:
    return (version.workspace.onnx / "labels.txt").read_text().splitlines()
