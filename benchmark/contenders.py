"""What is compared: how each is started, and how it is asked."""

import http.client
import json
import os
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmark.load import Ask, Connect, Question, infer_path, over_grpc, over_http
from benchmark.services.usual import SETUP, Setup
from bundle_serving.health import PICTURE
from bundle_serving.openvino_engine import Engine
from bundle_serving.pictures import Transform, to_pixels
from bundle_serving.process import main_pipeline
from bundle_serving.scores import softmax
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.ports import free_ports
from scripts.measuring.textbook import server
from scripts.measuring.textbook.server import HERE
from scripts.recipes.image import Image
from scripts.recipes.layout import CPU
from scripts.repository.archive import Version
from scripts.server.served import find_served_version
from scripts.stacks import temporary
from scripts.stacks.state import State

# The bundle, in the ways that it can be asked; and its own functions without any server.
OURS, OVER_GRPC, AROUND, ALONE = "bundle", "bundle-grpc", "bundle-socket", "alone"
WAYS = (OURS, OVER_GRPC, AROUND)


@dataclass(frozen=True)
class Contender:
    """What is up, and can be asked."""

    name: str
    connect: Connect
    label: Callable[[bytes], str]  # the first one of an answer

    def question(self, pictures: Sequence[bytes]) -> Question:
        return Question(self.name, self.connect, pictures)

    def first_label(self, picture: bytes) -> str:
        with self.connect() as ask:
            return self.label(ask(picture))

    def reason_to_wait(self) -> str | None:
        """None once a picture is answered."""
        try:
            self.first_label(PICTURE)
        except (OSError, http.client.HTTPException) as fault:
            return str(fault) or type(fault).__name__
        return None


# Those of benchmark/services, and how each is started.
SERVICES = {
    "fastapi": "-m uvicorn benchmark.services.fastapi_service:app --log-level warning "
    "--workers {workers} --port {port}",
    "litserve": "-m benchmark.services.litserve_service --port {port}",
    "bentoml": "-m bentoml serve benchmark.services.bentoml_service:Service "
    "--host 127.0.0.1 --port {port}",
    "mosec": "-m benchmark.services.mosec_service --address 127.0.0.1 --log-level warning "
    "--port {port}",
}


def triton(name: str, connect: Connect) -> Contender:
    labels = labels_of(find_served_version())

    def label(answer: bytes) -> str:
        probabilities = np.frombuffer(answer[-4 * len(labels) :], np.float32)
        return labels[int(probabilities.argmax())]

    return Contender(name, connect, label)


def bundle(way: str, up: State) -> Contender:
    if up.http.certificate or up.http.api_key:
        raise UserError(
            "this server asks for TLS or keys, which the others do not",
            "compare like with like: make up BIND=127.0.0.1 TLS_CERT= TLS_KEY=, then make rivals",
        )
    if way == AROUND and up.flavour != "local":
        raise UserError(
            f"{AROUND} is Triton's own socket, which is inside the container here",
            "use FLAVOUR=local",
        )
    connects = {
        OURS: lambda: over_http(str(up.http), infer_path()),
        OVER_GRPC: lambda: over_grpc(str(up.grpc)),
        AROUND: lambda: over_grpc(str(up.admin)),
    }
    return triton(way, connects[way]())


def alone() -> Contender:
    """What no service can exceed on these cores: the bundle's own functions, called by the clients
    themselves, with a network of one thread a core; one at a time has one core."""
    version = find_served_version()
    transform = Transform.load(
        version.member(find_recipe(version).models.preprocessing) / "transform.json"
    )
    network = find_network(version)
    engines: queue.LifoQueue[Engine] = queue.LifoQueue()
    for _ in range(len(os.sched_getaffinity(0))):
        engines.put(Engine(network, version.precision, threads=1))

    def ask(picture: bytes) -> bytes:
        engine = engines.get()
        try:
            scores = engine.only_output({"input": to_pixels(picture, transform)[None]})
        finally:
            engines.put(engine)
        return softmax(scores.astype(np.float32)).tobytes()

    @contextmanager
    def connect() -> Iterator[Ask]:
        yield ask

    return triton(ALONE, connect)


@contextmanager
def textbook() -> Iterator[Contender]:
    with server.serve_textbook() as (address, _):
        yield triton("textbook", over_http(address, infer_path(main_pipeline.DEFAULT)))


@contextmanager
def running(name: str, setup: Setup) -> Iterator[Contender]:
    """One of SERVICES."""
    setup_file = HERE / "setup.json"
    files.write(setup_file, setup.dump())
    (port,) = free_ports(1)
    contender = Contender(
        name,
        over_http(f"127.0.0.1:{port}", "/classify", {"Content-Type": "image/jpeg"}),
        lambda answer: str(json.loads(answer)["label"]),
    )
    with temporary.running(
        f"the {name} service",
        [sys.executable, *SERVICES[name].format(workers=setup.workers, port=port).split()],
        HERE / "logs" / f"{name}.log",
        contender.reason_to_wait,
        {SETUP: str(setup_file)},
    ):
        yield contender


def what_is_served(version: Version, workers: int, draft: bool) -> Setup:
    """The network as the bundle serves it now, for others to serve the same."""
    made = version.workspace
    transform = made.manifest.transform
    return Setup(
        network=str(find_network(version)),
        precision=made.decision["precision"],
        labels=labels_of(version),
        resize=transform["resize"],
        crop=transform["crop"],
        workers=workers,
        draft=draft,
    )


def find_network(version: Version) -> Path:
    return version.member(find_recipe(version).network_model(CPU)) / CPU.file


def find_recipe(version: Version) -> Image:
    """Of a network that others can serve too."""
    recipe, name = version.pipeline.recipe, version.pipeline.ensemble
    if not isinstance(recipe, Image):
        raise UserError(
            f"{name} is no classifier of pictures, which the others serve",
            "choose another main pipeline: make up MAIN=…",
        )
    if recipe.pre or recipe.post:
        raise UserError(
            f"{name} has steps of its own, which the others lack", "measure it: make bench"
        )
    return recipe


def labels_of(version: Version) -> list[str]:
    return (version.workspace.onnx / "labels.txt").read_text().splitlines()
