"""`make images PUSH=` looks at the registry before it builds."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from scripts.base.errors import UserError
from scripts.stacks.images import require_registry
from tests.plugin import require_docker
from tests.project import Project, error_lines, free_ports, run
from tests.surroundings import registries


@pytest.fixture(autouse=True, scope="module")
def docker_is_there() -> None:
    require_docker()


def test_nothing_is_built_for_what_does_not_answer(tmp_path: Path) -> None:
    project, (port,) = Project.copy(tmp_path / "project"), free_ports(1)
    refused = project.make("images", PUSH=f"127.0.0.1:{port}/team")
    (line,) = error_lines(refused.stderr)
    assert f"no registry of images answers at 127.0.0.1:{port}: " in line
    assert "connection refused; check PUSH" in line
    assert refused.returncode and "building" not in refused.stdout


@pytest.mark.parametrize("name", ["https://registry.example/team", "registry.example/Team"])
def test_what_names_no_registry_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"PUSH={name} names no registry: ") as refused:
        require_registry(name)
    assert "without https://" in refused.value.remedy


class Page(BaseHTTPRequestHandler):
    """Of something else that speaks HTTP."""

    def do_GET(self) -> None:
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def page(status: int) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        server.status = status  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("status", [200, 404, 500])
def test_what_is_no_registry_is_refused(status: int) -> None:
    with page(status) as address, pytest.raises(UserError) as refused:
        require_registry(f"{address}/team")
    assert f"no registry of images answers at {address}: " in refused.value.cause


def test_an_empty_registry_will_do(tmp_path: Path) -> None:
    with registries.running(tmp_path) as address:
        require_registry(f"{address}/team")


def test_a_registry_wants_a_password_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with registries.running(tmp_path, with_password=True) as address:
        with pytest.raises(UserError, match=f"{address} does not let you in: ") as refused:
            require_registry(f"{address}/team")
        assert f"docker login {address}" in refused.value.remedy
        run("docker", "login", "--username=ann", "--password=of-the-tests", address)
        require_registry(f"{address}/team")
        file = tmp_path / "docker" / "config.json"
        kept = json.loads(file.read_text())
        kept["auths"][address]["auth"] = "YW5uOndyb25n"  # by another password
        file.write_text(json.dumps(kept))
        with pytest.raises(UserError, match="does not let you in: unauthorized"):
            require_registry(f"{address}/team")
