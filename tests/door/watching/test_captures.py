"""A real door keeps requests: those that are wanted, and of those who ask nothing else."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bundle_door.watching.captures import FOLDER
from bundle_serving.process.guard import HEADER as ADMIN_KEY
from tests.door.servers import KEY, Behind, behind_the_door
from tests.door.test_candidates import PICTURE, control, loaded, over_grpc
from tests.project import wait_until

NAME, ADDRESS = "shop-of-ann", "203.0.113.77"
SENT = {"x-forwarded-for": ADDRESS, "authorization": "Bearer secret-key", "cookie": "secret-key"}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module", params=[1, 2])
def keeping(
    tmp_path_factory: pytest.TempPathFactory, state: Path, request: pytest.FixtureRequest
) -> Iterator[Behind]:
    options = (f"--state-folder={state}", "--keep=class:middling,class:1,differs")
    run = tmp_path_factory.mktemp("door") / "run"
    with behind_the_door(run, options=options, processes=request.param) as server:
        yield server


def kept(server: Behind) -> list[dict[str, Any]]:
    status, _, content = server.ask("GET", "/v2/captures", headers={ADMIN_KEY: KEY})
    assert status == 200
    return json.loads(content)  # type: ignore[no-any-return]


def ask(server: Behind, path: str, id: str, picture: bytes, **headers: str) -> dict[str, Any]:
    given = {"x-request-id": id, **SENT, **{k.replace("_", "-"): v for k, v in headers.items()}}
    status, _, content = server.ask("POST", path, picture, given)
    assert status == 200, content
    return json.loads(content) if path.startswith("/classify") else {}


def count(server: Behind, outcome: str) -> int:
    _, _, text = server.ask("GET", "/metrics", connection=server.connection(server.metrics_port))
    line = f'bundle_captures_total{{outcome="{outcome}"}} '
    return sum(int(each[len(line) :]) for each in text.decode().splitlines() if line in each)


def test_what_is_wanted_is_kept_and_of_who_asks_nothing(keeping: Behind, state: Path) -> None:
    ask(keeping, "/classify?model=picture", "none", b"\xff" + bytes(9))
    ask(keeping, "/classify?model=picture&top=2", "one", PICTURE)
    raw = {"inference_header_content_length": "0"}
    ask(keeping, "/v2/models/picture/infer?key=secret-key", "two", PICTURE, **raw)
    wait_until(lambda: len(kept(keeping)) == 2, "what is kept")
    one, two = sorted(kept(keeping), key=lambda each: each["id"])
    assert one["path"] == "/classify?top=2&model=picture" and one["ms"] > 0
    assert [label for label, _ in one["labels"]] == ["middling", "low"]
    assert json.loads(one["answer"])["labels"][0]["label"] == "middling"
    assert (two["path"], two["head"]) == ("/v2/models/picture/infer", "")
    assert (state / FOLDER / one["file"]).read_bytes() == PICTURE
    for path in (state / FOLDER).rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for secret in (ADDRESS, "secret-key", "127.0.0.1", KEY):
            assert secret.encode() not in content
    wait_until(lambda: count(keeping, "kept") == 2, "the counts")


def test_what_comes_over_grpc_is_kept_in_the_same_form(keeping: Behind, state: Path) -> None:
    with over_grpc(keeping) as ask_it:

        def is_kept() -> bool:
            ask_it("", model="picture", **{"x-request-id": "over-grpc", **SENT})
            return "over-grpc" in {each["id"] for each in kept(keeping)}

        wait_until(is_kept, "what is kept")
    found = next(each for each in kept(keeping) if each["id"] == "over-grpc")
    assert found["path"] == "/v2/models/picture/infer" and found["ms"] > 0
    assert [label for label, _ in found["labels"][:1]] == ["class 1"]
    assert json.loads(found["answer"])["outputs"][0]["parameters"] == {"binary_data_size": 12}
    assert (state / FOLDER / found["file"]).read_bytes() == PICTURE
    assert found["file"].endswith(".jpg")
    for path in (state / FOLDER).rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for secret in (ADDRESS, "secret-key", "127.0.0.1", KEY):
            assert secret.encode() not in content
    # And can be asked again as it was.
    again = found["head"].encode() + (state / FOLDER / found["file"]).read_bytes()
    given = {"inference-header-content-length": str(len(found["head"]))}
    status, _, content = keeping.ask("POST", found["path"], again, given)
    assert status == 200 and content.startswith(found["answer"].encode())


def test_what_differs_is_kept(keeping: Behind, state: Path, tmp_path: Path) -> None:
    high, goes_on = b"\xff" * 99, tmp_path / "goes on"
    goes_on.touch()
    control(keeping, "stuck", "load", {})
    shadow = {"share": "0", "shadow": "100", "version": "9"}
    with loaded(keeping, "shown"), loaded(keeping, "shown_candidate", "stuck", **shadow):

        def is_kept() -> bool:
            ask(keeping, "/classify?model=shown", "differs", high + str(goes_on).encode())
            return "differs" in {each["id"] for each in kept(keeping)}

        wait_until(is_kept, "a request that differs")
    status, _, content = keeping.ask("DELETE", "/v2/captures?id=differs", headers={ADMIN_KEY: KEY})
    assert status == 200 and int(content) >= 1
    assert "differs" not in {each["id"] for each in kept(keeping)}


def test_what_is_kept_elsewhere_leaves(keeping: Behind) -> None:
    ask(keeping, "/classify?model=picture", "gone", PICTURE)
    wait_until(lambda: "gone" in {each["id"] for each in kept(keeping)}, "what is kept")
    known = [[each["id"], each["time"]] for each in kept(keeping) if each["id"] == "gone"]
    given = {ADMIN_KEY: KEY}
    status, _, content = keeping.ask("POST", "/v2/captures", json.dumps(known).encode(), given)
    assert (status, int(content)) == (200, len(known))
    assert "gone" not in {each["id"] for each in kept(keeping)}
    assert keeping.ask("POST", "/v2/captures", b"[1]", given)[0] == 400


def test_nobody_is_hurt_where_nothing_can_be_kept(keeping: Behind, state: Path) -> None:
    shutil.rmtree(state / FOLDER, ignore_errors=True)
    (state / FOLDER).write_text("no folder")
    try:
        failed = count(keeping, "failed")
        ask(keeping, "/classify?model=picture", "three", PICTURE)
        wait_until(lambda: count(keeping, "failed") == failed + 1, "the count")
    finally:
        (state / FOLDER).unlink()


def test_others_can_read_nothing(keeping: Behind) -> None:
    changes = ("DELETE", "?id=one"), ("POST", "")
    for method, path in (("GET", ""), ("GET", "/../references.json"), *changes):
        assert keeping.ask(method, f"/v2/captures{path}")[0] in (403, 404)
    given = {ADMIN_KEY: KEY}
    for name in ("../references.json", ".lock", "%2e%2e/references.json"):
        assert keeping.ask("GET", f"/v2/captures/{name}", headers=given)[0] == 404
