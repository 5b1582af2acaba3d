"""A server that other machines reach: by make, with TLS and API keys."""

import shutil
import ssl
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmark.rollouts import clients
from bundle_client import Client, KeyRefused, ServerUnreachable
from bundle_client.server import Protocol
from scripts.measuring.perf_analyzer import has_libb64
from tests.measuring import words_shown_while_measuring
from tests.plugin import FLAVOURS, require_docker
from tests.project import Project, asked_meanwhile, error_lines, picture, run, wait_until
from tests.stand_ins import rehearse


@pytest.fixture(params=FLAVOURS)
def project(request: pytest.FixtureRequest, tmp_path: Path, exported: Path) -> Iterator[Project]:
    if request.param != "local":
        require_docker()
    if request.param == "gpu":
        with rehearse(tmp_path) as made:
            made.settings["BIND"] = "0.0.0.0"
            yield made
        return
    made = Project.copy(tmp_path / "beyond", FLAVOUR=request.param, BIND="0.0.0.0")
    shutil.copytree(exported / "versions", made.path / "build" / "versions")
    yield made
    made.make("clean") if request.param == "cpu" else made.end()


def key_of(project: Project, name: str) -> str:
    return project.made("keys", f"ADD={name}").split()[-1]


def test_tls_and_keys(project: Project) -> None:
    refused = project.make("up")
    assert "make keys ADD=ann" in error_lines(refused.stderr)[0]
    ann, bob = key_of(project, "ann"), key_of(project, "bob")
    assert "created a self-signed certificate in build/tls" in project.made("up")
    shown = project.made("status").splitlines()[0]
    assert "https://" in shown and "127.0.0.1" not in shown
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
    wait_until(lambda: " client=ann protocol=http " in project.made("logs"), "the access log")
    log = project.made("logs")
    assert not {ann, bob, project.admin_key} & {*log.split()}
    assert (project.path / "build" / "tls" / "key.pem").stat().st_mode & 0o007 == 0
    if has_libb64():
        words = words_shown_while_measuring(project)
        assert not any(project.admin_key in word for word in words)
        assert any(word.startswith("authorization:Bearer ") for word in words)


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
@pytest.mark.parametrize("project", ["local"], indirect=True)
def test_an_address_of_ipv6(project: Project) -> None:
    project.settings["BIND"] = "::1"
    project.made("up")
    assert "http://[::1]:" in project.made("status")
    url = f"http://[::1]:{project.settings['HTTP_PORT']}/v2/health/ready"
    with urllib.request.urlopen(url) as answer:
        assert answer.status == 200


def certificate_of_a_company(folder: Path, days: int = 2) -> dict[str, str]:
    """For localhost, by an authority of its own: TLS_CERT with the chain, TLS_KEY, and CA, which
    clients trust."""
    names = ("ca.pem", "ca.key", "leaf.pem", "leaf.key", "request.pem", "chain.pem")
    ca, ca_key, leaf, key, request, chain = (str(folder / name) for name in names)
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=DNS:localhost,DNS:server.example.org\n")
    new = ("openssl", "req", "-newkey", "rsa:2048", "-nodes")
    run(*new, "-x509", "-days", str(days), "-subj", "/CN=company", "-keyout", ca_key, "-out", ca)
    run(*new, "-subj", "/CN=server.example.org", "-keyout", key, "-out", request)
    signed = (
        "openssl",
        "x509",
        "-req",
        "-days",
        str(days),
        "-in",
        request,
        "-CA",
        ca,
        "-CAkey",
        ca_key,
    )
    run(*signed, "-CAcreateserial", "-extfile", str(extensions), "-out", leaf)
    Path(chain).write_text(Path(leaf).read_text() + Path(ca).read_text())
    return {"TLS_CERT": chain, "TLS_KEY": key, "CA": ca}


@pytest.mark.rare
def test_rollouts_with_a_certificate_of_ones_own(project: Project, tmp_path: Path) -> None:
    files = certificate_of_a_company(tmp_path)
    ca_file = files.pop("CA")
    project.settings |= files | {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "20"}
    ann = key_of(project, "ann")
    assert "self-signed" not in project.made("up")
    project.made("publish", MAX_MEGAPIXELS="40")
    ports = {name: project.settings[f"{name}_PORT"] for name in ("HTTP", "GRPC")}
    urls = f"https://localhost:{ports['HTTP']}", f"grpcs://localhost:{ports['GRPC']}"
    context = ssl.create_default_context(cafile=ca_file)

    def readiness() -> int:
        """As a load balancer asks, which has no key."""
        with urllib.request.urlopen(f"{urls[0]}/v2/health/ready", context=context) as answer:
            return int(answer.status)

    with (
        clients(*urls, 2, 0.2, api_key=ann, ca_file=ca_file) as load,
        asked_meanwhile(readiness) as ready,
    ):
        assert "is live; 0 of " in project.made("rollout", CANARY="20")
        assert "is live; 0 of " in project.made("rollback")
    assert load.faults == [] and load.answered
    assert ready == [200]
