"""The repository on a real S3 server that asks for keys: mirrored, served from, out of reach."""

import configparser
import secrets
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest
import tritonclient.grpc
import tritonclient.http
from botocore.client import BaseClient
from tritonclient.utils import InferenceServerException

from benchmark.rollouts import clients
from bundle_client import Client
from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import guard
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from extensions.s3 import check
from extensions.s3.access import Access
from extensions.s3.location import parse
from extensions.s3.remote import Remote
from scripts.base.errors import UserError
from scripts.base.paths import PYTHON
from scripts.repository.history import SHOWN
from scripts.settings.settings import Settings
from scripts.stacks import temporary
from tests.end_to_end.measuring.test_drift import a_reference_outlives_the_server
from tests.end_to_end.own.test_own_main import OTHERS, write_steps
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import Project, free_ports, picture, wait_until

NETWORK = "resnet50_onnx"

ADMIN_KEY = secrets.token_hex(32)

# All that goes over the line where S3 copies the network by itself.
WITHOUT_NETWORK = 1 << 20

# Within which each fault must be reported.
MOST_S = 10

# Of health checks; if Triton were asked for its index, there would be hundreds.
MOST_CHECKS = 10
# Of the keeper, one for each process of a model: of several rounds.
TEST_REQUESTS = 6

# Triton asks a closed port again and again before it gives up.
LOAD_S = 120


@dataclass
class Place:
    """An S3 server of `make s3-up`, and the keys that it made."""

    project: Project
    port: int

    def url(self, path: str, bucket: str = "models") -> str:
        return f"s3://http://127.0.0.1:{self.port}/{bucket}/{path}"

    def keys(self, user: str) -> Path:
        return self.project.path / "build" / "run" / "s3" / f"{user}.credentials"

    def settings(self) -> Settings:
        return Settings.load({"S3_SERVER_CREDENTIALS": str(self.keys("server"))}, Path("none"))

    def remote(self, path: str, bucket: str = "models") -> Remote:
        return Remote(Access.of_operator(parse(self.url(path, bucket)), self.settings()))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    require_docker()
    (port,) = free_ports(1)
    project = Project.copy(tmp_path_factory.mktemp("s3"), S3_PORT=str(port), FLAVOUR="local")
    there = Place(project, port)
    try:
        project.made("s3-up")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(there.keys("operator")))
            for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
                patch.delenv(name, raising=False)
            yield there
    finally:
        project.make("clean")  # the container, its image and what it holds


@pytest.fixture(scope="module")
def models(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that is laid out; the ensemble's version folder is empty."""
    folder = tmp_path_factory.mktemp("models") / "live"
    ignored = shutil.ignore_patterns(".gitkeep", "__pycache__", SHOWN)
    shutil.copytree(exported / "live", folder, ignore=ignored)
    return folder


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What was asked of S3, and how often."""
    counted: Counter[str] = Counter()
    client_of_any_service: Any = BaseClient
    call = client_of_any_service._make_api_call

    def count(client: BaseClient, operation: str, parameters: dict[str, Any]) -> Any:
        counted[operation] += 1
        return call(client, operation, parameters)

    monkeypatch.setattr(BaseClient, "_make_api_call", count)
    return counted


def test_a_mirror_sends_what_changed_and_nothing_else(
    place: Place, models: Path, tmp_path: Path, requests: Counter[str]
) -> None:
    folder = tmp_path / "live"
    shutil.copytree(models, folder)
    live = place.remote("mirrored")
    first = live.mirror(folder)
    assert first.uploaded > 10 and first.skipped == first.removed == 0
    assert f"{PIPELINE}/1/" in live.list(), "the marker of an empty folder"
    again = live.mirror(folder)
    assert (again.uploaded, again.skipped, again.bytes) == (0, first.uploaded, 0)
    requests.clear()
    assert live.mirror(folder).uploaded == 0
    assert requests == {"ListObjectsV2": 1}, "what is known is not asked again"

    labels = folder / PIPELINE / "labels.txt"
    labels.write_text(labels.read_text().swapcase())  # of the same size
    shutil.rmtree(folder / "preprocessing" / "warmup")
    kept = live.mirror(folder, delete=False)
    assert (kept.uploaded, kept.removed) == (1, 0)
    assert live.mirror(folder).removed == 1
    assert live.read(f"{PIPELINE}/labels.txt") == labels.read_bytes()

    live.write("of_another/1/model.py", b"pass\n")  # by another machine
    shutil.rmtree(folder / "preprocessing")
    assert live.mirror(folder, only=["preprocessing"]).uploaded == 0
    there = {name.partition("/")[0] for name in live.list()}
    assert "of_another" in there and "preprocessing" not in there


def test_what_s3_has_already_it_copies_by_itself(
    place: Place, models: Path, tmp_path: Path, requests: Counter[str]
) -> None:
    live = place.remote("copied")
    live.mirror(models)
    archive = live.archive
    kept = archive.mirror(models, to="1", known=live.prefix)
    assert kept.uploaded > 10 and kept.bytes < WITHOUT_NETWORK
    requests.clear()
    archive.mirror(models, to="2", known=archive.prefix)
    assert requests["HeadObject"] <= 2, "not of every version that is kept"
    archive.remove("2/")
    assert archive.mirror(models, to="1").uploaded == 0
    assert (left := archive.list()) and all(name.startswith("1/") for name in left)

    archive.fetch("1", tmp_path / "back")
    same = subprocess.run(["diff", "-r", models, tmp_path / "back"], capture_output=True, text=True)
    assert same.stdout == ""
    archive.write("history.jsonl", b"{}\n")
    assert archive.read("history.jsonl") == b"{}\n" and archive.read("none") is None
    archive.remove("1/")
    assert archive.list() == ["history.jsonl"]
    with pytest.raises(UserError, match="nothing below"):
        archive.fetch("1", tmp_path / "back")
    assert (tmp_path / "back" / PIPELINE).is_dir()


class Served(NamedTuple):
    http: str
    grpc: str


@pytest.fixture(scope="module")
def served(
    place: Place, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A server that loads from S3 with the key that may only read."""
    place.remote("live").mirror(models)
    run = tmp_path_factory.mktemp("run")
    http, grpc, metrics = map(str, free_ports(3))
    command: list[str | Path] = [PYTHON, "-m", "bundle_keeper", "--run-dir", run]
    command += ["--repository", place.url("live"), "--s3-credentials", place.keys("server")]
    command += ["--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]
    command += ["--shm-prefix", f"triton_temporary_s3_{http}_", "--admin-key-file", run / "key"]
    (run / "key").write_text(ADMIN_KEY)
    address = Served(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")
    log = run / "server.log"
    with temporary.running(
        "the server", command, log, lambda: reason_not_to_trust(f"http://{address.http}", PIPELINE)
    ):
        assert list((run / "from-s3").rglob("model.onnx")), "Triton's copies lie in its own folder"
        yield address
    assert not list((run / "from-s3").iterdir()), "and go with it"


def load(served: Served) -> None:
    """Over gRPC, as commands do: over HTTP it would keep others of its thread waiting."""
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        client.load_model(NETWORK, headers={guard.GRPC_HEADER: ADMIN_KEY}, client_timeout=LOAD_S)


def ready_versions(served: Served) -> list[str]:
    client = tritonclient.http.InferenceServerClient(served.http)
    index = client.get_model_repository_index(headers={guard.HEADER: ADMIN_KEY})
    return [m["version"] for m in index if m["name"] == NETWORK and m.get("state") == "READY"]


def test_a_server_answers_from_s3_and_takes_a_new_version(
    place: Place, models: Path, served: Served, tmp_path: Path
) -> None:
    shutil.copytree(models, tmp_path / "live")
    network = tmp_path / "live" / NETWORK
    shutil.copytree(network / "1", network / "2")
    live = place.remote("live")
    assert live.mirror(tmp_path / "live", known=live.prefix).bytes < WITHOUT_NETWORK
    load(served)
    assert "2" in ready_versions(served)
    with Client(url=served.http) as client:
        assert client.classify(picture(), top=1).labels
    assert live.mirror(models).uploaded == 0, "only taken away"
    load(served)
    assert "1" in ready_versions(served)


def test_a_server_that_loads_nothing_asks_s3_for_nothing(place: Place, served: Served) -> None:
    """Requests to S3 may cost money. Only the container's own health check still connects."""
    with Client(url=served.http) as client:
        client.classify(picture(), top=1)
        wait_until(lambda: quiet(place), "the processes of the version before to have ended")
        before, asked = connections(place), answered(served)
        # By the keeper's test requests, before which it asks what is ready.
        wait_until(lambda: answered(served) >= asked + TEST_REQUESTS, "the keeper to have asked")
        client.classify(picture(), top=1)  # and the door asks too
    assert connections(place) - before < MOST_CHECKS


def answered(served: Served) -> int:
    client = tritonclient.http.InferenceServerClient(served.http)
    told = client.get_inference_statistics(PIPELINE, headers={guard.HEADER: ADMIN_KEY})
    return sum(each["inference_stats"]["success"]["count"] for each in told["model_stats"])


def connections(place: Place) -> int:
    """That were made in the S3 server's container."""
    container = output("docker", "ps", "--quiet", "--filter", f"publish={place.port}").strip()
    told = output("docker", "exec", container, "cat", "/proc/net/snmp")
    names, numbers = (line.split() for line in told.splitlines() if line.startswith("Tcp: "))
    return int(dict(zip(names, numbers, strict=True))["PassiveOpens"])


def quiet(place: Place, seconds: float = 5) -> bool:
    """Whether nobody but health checks connects for so long."""
    before = connections(place)
    time.sleep(seconds)
    return connections(place) - before < MOST_CHECKS


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_s3_that_goes_away_costs_no_request(place: Place, served: Served) -> None:
    answered, failed = 0, []
    loaded = threading.Event()

    def ask() -> None:
        nonlocal answered
        with Client(url=served.http) as client:
            while not loaded.is_set():
                try:
                    client.classify(picture(), top=1)
                    answered += 1
                except Exception as fault:
                    failed.append(fault)

    assert "S3 server stopped" in place.project.made("s3-down")
    assert "no S3 server was running" in place.project.made("s3-down")
    try:
        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: bool(answered or failed), "the first answer")
        with pytest.raises(InferenceServerException):
            load(served)
        loaded.set()
        asking.join()
        assert not failed
        with pytest.raises(UserError, match="nothing is listening"):
            place.remote("live").list()
    finally:
        loaded.set()
        place.project.made("s3-up")
    load(served)
    with Client(url=served.http) as client:
        assert client.classify(picture(), top=1).labels


@pytest.fixture
def rolled(place: Place, exported: Path) -> Iterator[Project]:
    """A server brought up from S3 by `make up`, in a container, which reaches the S3 server of its
    own project alone."""
    settings = {
        "FLAVOUR": "cpu",
        "REPOSITORY": place.url("rolled"),
        "S3_SERVER_CREDENTIALS": str(place.keys("server")),
        "WATCH_SECONDS": "1",
        "MAX_P99_RATIO": "20",
    }
    project = Project(place.project.path, place.project.settings | settings)
    project.take(exported)
    try:
        project.made("up")
        yield project
    finally:
        project.make("down")


@pytest.mark.rare
def test_a_restart_a_rollout_and_the_way_back_on_s3(
    rolled: Project, place: Place, tmp_path: Path
) -> None:
    a_reference_outlives_the_server(rolled)
    first = rolled.served_version.name
    assert "published: version" in rolled.made("publish", MAX_MEGAPIXELS="40")
    with clients(rolled.http, rolled.grpc, 2, pause=0.2) as load:
        for command in ("rollout", "rollback"):
            assert "is live; 0 of " in rolled.made(command)
    assert load.faults == [] and load.answered
    assert rolled.served_version.name == first
    live = place.remote("rolled")
    served = {name.split("/")[1] for name in live.list(f"{NETWORK}/")}
    assert served == {first, "config.pbtxt", "configs", "labels.txt", "warmup"}

    # A second machine, without containers, finds it all there.
    kept = live.archive.list()
    other = Project.copy(tmp_path / "second", **rolled.settings | ports() | {"FLAVOUR": "local"})
    try:
        assert f"version {first}" in other.made("up")
        assert other.made("history") == rolled.made("history")
        assert other.served_version.name == first
        assert live.archive.list() == kept, "no version was made anew"
        assert "is live; 0 of " in other.made("rollout")
    finally:
        other.end()


def ports() -> dict[str, str]:
    names = ("HTTP_PORT", "GRPC_PORT", "METRICS_PORT")
    return dict(zip(names, map(str, free_ports(3)), strict=True))


def keys_of(file: Path) -> dict[str, str]:
    parsed = configparser.ConfigParser()
    parsed.read(file)
    return {name.upper(): value for name, value in parsed["default"].items()}


def complaint(place: Place, url: str, **server: str) -> str:
    began = time.monotonic()
    with pytest.raises(UserError) as refused:
        check.examine(parse(url), place.settings().replace_with(**server))
    assert time.monotonic() - began < MOST_S
    return f"{refused.value.cause}; {refused.value.remedy}"


@pytest.mark.rare
def test_a_network_of_ones_own_with_its_steps_and_packages(place: Place, tmp_path: Path) -> None:
    """In a container, which reads them from S3."""
    draw_network(tmp_path / "birds.onnx")
    write_steps(tmp_path)
    settings = {
        "FLAVOUR": "cpu",
        "REPOSITORY": place.url("birds"),
        "S3_SERVER_CREDENTIALS": str(place.keys("server")),
        "ARCH": "",
        "WEIGHTS": "",
    }
    project = Project(place.project.path, place.project.settings | settings)
    for name in ("versions", "live"):  # what other tests have served
        shutil.rmtree(project.path / "build" / name, ignore_errors=True)
    try:
        project.made("up", FROM=f"{tmp_path}/birds.onnx", TRUST="1")
        there = place.remote("birds").list()
        assert any(name.endswith("/packages/robins.py") for name in there), there
        with Client(url=project.http) as client:
            assert client.classify(picture()).labels[0].probability == 1
        draw_network(tmp_path / "second.onnx", seed=1)
        project.made("publish", WEIGHTS=f"{tmp_path}/second.onnx")
        lenient = {"ANYWAY": "1", "WATCH_SECONDS": "1", "MAX_P99_RATIO": "1000"}
        for command, number in (("rollout", 2), ("rollback", 1)):
            assert f"version {number} is live" in project.made(command, **lenient)
        assert not OTHERS.search(" ".join(place.remote("birds").list()))
    finally:
        project.make("down")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {"AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_EC2_METADATA_DISABLED": "true"},
            "S3 credentials",
        ),
        ({"AWS_PROFILE": "nobody"}, "nobody"),
        ({"AWS_ACCESS_KEY_ID": "bundle:stranger"}, "no key bundle:stranger: this server sends"),
        ({"AWS_SECRET_ACCESS_KEY": "guessed"}, "the secret of your key is wrong, or there is no"),
        ({"AWS_REGION": "eu-west-1"}, "AWS_REGION=us-east-1"),
    ],
)
def test_each_fault_of_a_key_has_its_own_words(
    place: Place, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: str
) -> None:
    if any("KEY" in name for name in environment):
        environment = keys_of(place.keys("operator")) | environment
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert words in complaint(place, place.url("live"))


def test_each_fault_of_a_place_has_its_own_words(place: Place) -> None:
    assert "no bucket elsewhere" in complaint(place, place.url("live", bucket="elsewhere"))
    https = place.url("live").replace("s3://http:", "s3://https:")
    assert "speaks plain http" in complaint(place, https)


def test_too_few_and_too_many_rights_are_reported(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place.remote("live").write("labels.txt", b"")
    too_much = tmp_path / "server.credentials"
    too_much.write_text(place.keys("operator").read_text() + "region = us-east-1\n")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    message = complaint(place, place.url("live"), S3_SERVER_CREDENTIALS=str(too_much))
    assert "the server's key bundle:operator may write" in message
    elsewhere = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{place.port}")
    elsewhere.create_bucket(Bucket="private")
    place.remote("live", "private").write("labels.txt", b"")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(place.keys("server")))
    assert "may not write" in complaint(place, place.url("live"))
    assert "may not list" in complaint(place, place.url("live", bucket="private"))
    with pytest.raises(UserError, match="may not read"):
        place.remote("live", "private").read("labels.txt")


def test_s3_check_before_the_first_up_says_that_all_is_well(place: Place) -> None:
    output = place.project.made(
        "s3-check",
        REPOSITORY=place.url("never-filled"),
        S3_SERVER_CREDENTIALS=str(place.keys("server")),
    )
    assert "lists, reads and writes" in output and "cannot write" in output
    assert "nothing below" in output and "make up" in output
