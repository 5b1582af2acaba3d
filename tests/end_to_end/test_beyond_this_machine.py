"""A server that other machines reach: by make, with TLS and API keys."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bundle_client import Client, KeyRefused, ServerUnreachable
from bundle_client.server import Protocol
from tests.conftest import require_docker
from tests.project import Project, error_lines, picture, wait_until


@pytest.fixture(params=["local", pytest.param("cpu", marks=pytest.mark.long)])
def project(request: pytest.FixtureRequest, tmp_path: Path, exported: Path) -> Iterator[Project]:
    if request.param == "cpu":
        require_docker()
    made = Project.copy(tmp_path / "beyond", FLAVOUR=request.param, BIND="0.0.0.0")
    shutil.copytree(exported / "versions", made.path / "build" / "versions")
    yield made
    made.make("clean" if request.param == "cpu" else "down")


def key_of(project: Project, name: str) -> str:
    return project.made("keys", f"ADD={name}").split()[-1]


def test_tls_and_keys(project: Project) -> None:
    refused = project.make("up")
    assert "make keys ADD=ann" in error_lines(refused.stderr)[0]
    ann, bob = key_of(project, "ann"), key_of(project, "bob")
    assert "created a self-signed certificate in build/tls" in project.made("up")
    assert "https://127.0.0.1" in project.made("status")
    photo = project.path / "photo.jpg"
    photo.write_bytes(picture())
    project.made("classify", f"IMG={photo}")

    named: dict[Protocol, str] = {"http": "HTTP_PORT", "grpc": "GRPC_PORT"}
    ports = {protocol: project.settings[name] for protocol, name in named.items()}
    ca_file = str(project.path / "build" / "tls" / "cert.pem")
    for protocol, port in ports.items():
        asking = partial(Client, f"{protocol}s://localhost:{port}", protocol)
        with asking(api_key=ann, ca_file=ca_file) as known:
            assert known.classify(photo).labels
        with asking(ca_file=ca_file) as stranger, pytest.raises(KeyRefused):
            stranger.classify(photo)
        untrusted = pytest.raises(ServerUnreachable, match="certificate is not trusted")
        with asking(api_key=ann) as trusting_nobody, untrusted:
            trusting_nobody.classify(photo)
    project.made("keys", "REVOKE=ann")
    url = f"https://localhost:{ports['http']}"
    with Client(url, api_key=ann, ca_file=ca_file) as client, pytest.raises(KeyRefused):
        client.classify(photo)
    with Client(url, api_key=bob, ca_file=ca_file) as client:
        assert client.classify(photo).labels
    wait_until(lambda: " ann HTTP/" in project.made("logs"), "the access log")
    log = project.made("logs")
    assert not {ann, bob, project.admin_key} & {*log.split()}
    assert (project.path / "build" / "tls" / "key.pem").stat().st_mode & 0o007 == 0


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
@pytest.mark.parametrize("project", ["local"], indirect=True)
def test_an_address_of_ipv6(project: Project) -> None:
    project.settings["BIND"] = "::1"
    project.made("up")
    assert "http://[::1]:" in project.made("status")
    url = f"http://[::1]:{project.settings['HTTP_PORT']}/v2/health/ready"
    with urllib.request.urlopen(url) as answer:
        assert answer.status == 200
