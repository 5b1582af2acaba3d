"""What is refused before anything that runs is touched."""

import os
import shutil
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from docker.errors import DockerException

import docker
from bundle_door.access import certificate
from bundle_serving.process.exposure import CERTIFICATE, PRIVATE_KEY
from scripts.base import ports
from scripts.base.errors import UserError
from scripts.server.up import announce_silence
from scripts.settings.settings import DEFAULTS, PORTS, Settings
from scripts.stacks import certificates, docker_engine, exposure, handover, local


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(exposure, "FOLDER", tmp_path / "tls")
    for name in ("one", "other"):
        certificate.ensure(tmp_path / name, [])
    return tmp_path


def placed(cert: Path, key: Path) -> None:
    given = {"TLS_CERT": str(cert), "TLS_KEY": str(key)}
    certificates.place(Settings(DEFAULTS | given, given))


def test_a_certificate_is_placed_with_its_own_key_alone(made: Path) -> None:
    cert, key = made / "one" / CERTIFICATE, made / "one" / PRIVATE_KEY
    placed(cert, key)
    assert (exposure.FOLDER / PRIVATE_KEY).read_text() == key.read_text()
    for wrong in (made / "other" / PRIVATE_KEY, cert):
        with pytest.raises(UserError, match="no certificate with its key"):
            placed(cert, wrong)
    spoilt = made / "spoilt.pem"
    spoilt.write_text(cert.read_text().replace("A", "B"))
    with pytest.raises(UserError, match="no certificate with its key"):
        placed(spoilt, key)
    assert (exposure.FOLDER / CERTIFICATE).read_text() == cert.read_text()


def test_a_certificate_that_has_ended_is_not_placed(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the server from before would end for one that no command trusts."""
    cert, key = made / "one" / CERTIFICATE, made / "one" / PRIVATE_KEY
    end = certificate.ends(cert) or 0
    monkeypatch.setattr(time, "time", lambda: end + 1)
    with pytest.raises(UserError, match="ended on"):
        placed(cert, key)
    monkeypatch.setattr(time, "time", lambda: end - 1)
    placed(cert, key)
    open_to_others = Settings(DEFAULTS | {"BIND": "0.0.0.0"})
    certificates.make(open_to_others)
    monkeypatch.setattr(time, "time", lambda: end + 1)
    with pytest.raises(UserError, match=r"tls/cert.pem ended on"):  # which an earlier TLS_CERT left
        certificates.make(open_to_others)
    monkeypatch.setenv("PATH", "")  # without openssl that is not known
    placed(cert, key)


@pytest.mark.parametrize("address", ["localhost", "foo", "127.0.0.1.5", "1.2.3.4", "::2", ""])
def test_what_is_no_address_of_this_machine(address: str) -> None:
    with pytest.raises(UserError, match="is not an address of this machine"):
        ports.require_own(address)
    for own in ("127.0.0.1", "0.0.0.0"):
        ports.require_own(own)


@pytest.mark.parametrize("replaced", range(2))
def test_a_certificate_that_a_kill_leaves_half_made_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: int
) -> None:
    """Else it were somebody else's, without a key of its own, or never renewed."""
    replace, left = Path.replace, [*range(replaced)]

    def kill(file: Path, to: Path) -> Path:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return replace(file, to)

    monkeypatch.setattr(Path, "replace", kill)
    with pytest.raises(KeyboardInterrupt):
        certificate.ensure(tmp_path, [])
    monkeypatch.undo()
    assert certificate.ensure(tmp_path, []) and not certificate.ensure(tmp_path, [])
    ssl.create_default_context().load_cert_chain(tmp_path / CERTIFICATE, tmp_path / PRIVATE_KEY)


@pytest.mark.usefixtures("umask_077")
def test_a_containers_door_reads_a_certificate_whatever_the_umask(tmp_path: Path) -> None:
    certificate.ensure(tmp_path, [])
    assert (tmp_path / CERTIFICATE).stat().st_mode & 0o777 == 0o644
    assert (tmp_path / PRIVATE_KEY).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("port", "other"), [(80, 8080), (443, 8443), (8000, 8100), (65500, 65400)])
def test_another_port_is_one_that_anybody_may_open(
    monkeypatch: pytest.MonkeyPatch, port: int, other: int
) -> None:
    monkeypatch.setattr(ports, "holder", lambda *asked: "another program")
    with pytest.raises(UserError) as refused:
        ports.require_free("127.0.0.1", {"HTTP_PORT": port})
    assert refused.value.remedy.endswith(f"make up HTTP_PORT={other}")


def test_what_only_root_may_open_is_left_to_dockers_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    (free,) = ports.free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(socket.socket, "bind", refuse)
        assert "root's" in str(ports.holder("127.0.0.1", free))
        assert ports.holder("127.0.0.1", free, by_engine=True) is None
        assert f"(process {os.getpid()})" in str(ports.holder("127.0.0.1", port, by_engine=True))


@pytest.mark.parametrize("host", ["tcp://here:port", "unix:///nowhere", "nonsense"])
def test_a_docker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    why = docker_engine.why_not_docker() or ""
    assert why.startswith(f"no Docker engine answers at {host} (") and "DOCKER_HOST" in why


@pytest.mark.parametrize("content", ["[]", '{"proxies": 4}', '{"auths": {"registry": 5}}'])
def test_a_damaged_file_of_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (config := tmp_path / "config.json").write_text(content)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    said = f"{config} is not one of Docker's files (mend it"
    assert str(docker_engine.why_not_docker()).startswith(said)


def test_a_docker_whose_users_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It builds images, and removes what an earlier release started there."""
    info = {"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}
    answers = SimpleNamespace(ping=lambda: True, info=lambda: info)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(docker, "from_env", lambda **_: answers)
    monkeypatch.setattr(docker_engine, "compose_version", lambda: docker_engine.OLDEST_COMPOSE)
    assert docker_engine.why_not_docker() is None
    assert "who cannot own build/" in str(docker_engine.why_not_served())
    info["SecurityOptions"].pop()
    assert docker_engine.why_not_served() is None
    monkeypatch.setattr(answers, "info", Mock(side_effect=DockerException("403 Forbidden")))
    assert docker_engine.why_not_served() is None


@pytest.mark.parametrize("name", ["my project", "it's", "a$b", "über"])
def test_a_folder_that_triton_cannot_run_in(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It says so before anything else is made."""
    monkeypatch.setattr(local, "ROOT", Path("/srv") / name)
    with pytest.raises(UserError, match="cannot run in a folder with such a name"):
        local.LocalStack(Settings(DEFAULTS)).prepare()


def settings_for(port: int, **more: str) -> Settings:
    others = dict(zip(PORTS[1:], map(str, ports.free_ports(len(PORTS) - 1)), strict=True))
    return Settings(DEFAULTS | others | {"HTTP_PORT": str(port)} | more)


def test_two_servers_share_a_port_only_if_both_mean_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for shared in (True, False):
        with socket.create_server(("127.0.0.1", 0), reuse_port=shared) as first:
            port = first.getsockname()[1]
            its = settings_for(port)
            why = handover.obstacle(its, its, os.getpid())
            assert why == (None if shared else f"port {port} is not to be shared")
            assert handover.obstacle(settings_for(1), its, os.getpid()) is None  # on another port
    monkeypatch.setattr(handover, "ROOM", 1e9)
    assert "of memory" in str(handover.obstacle(settings_for(1), settings_for(2), os.getpid()))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"BIND": "0.0.0.0"}),
        ({"BIND": "127.0.0.2"}, {"BIND": "127.0.0.1"}),
        ({"BIND": "0.0.0.0", "INSECURE": "1"}, {"BIND": "0.0.0.0"}),
    ],
)
def test_servers_that_open_a_port_otherwise_do_not_share_it(
    first: dict[str, str], second: dict[str, str]
) -> None:
    (port,) = ports.free_ports(1)
    one, other = settings_for(port, **first), settings_for(port, **second)
    assert handover.obstacle(one, one, os.getpid()) is None
    for new, its in ((one, other), (other, one)):
        why = "they differ in BIND, INSECURE or TLS_CERT"
        assert handover.obstacle(new, its, os.getpid()) == why


@pytest.mark.parametrize(
    ("of_first", "of_second", "address"),
    [(1, 1, "127.0.0.1"), (1, 2, "127.0.0.1"), (2, 2, "::1"), (4, 4, "0.0.0.0"), (1, 1, "::")],
)
def test_what_came_to_the_first_is_left_to_it_and_all_else_goes_to_the_second(
    of_first: int, of_second: int, address: str
) -> None:
    """Each server has a listener for each of its threads."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with ExitStack() as stack:

        def listen(count: int, port: int = 0) -> list[socket.socket]:
            listening = []
            for _ in range(count):
                each = stack.enter_context(socket.socket(family))
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6:
                    each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
                each.bind((address, port))
                each.listen(100)
                each.setblocking(False)
                port = each.getsockname()[1]
                listening.append(each)
            return listening

        def ask(count: int) -> None:
            for _ in range(count):
                stack.enter_context(socket.create_connection((address, port)))

        def accept(server: list[socket.socket]) -> int:
            count = 0
            for each in server:
                with suppress(BlockingIOError):
                    while True:
                        each.accept()[0].close()
                        count += 1
            return count

        first = listen(of_first)
        port = first[0].getsockname()[1]
        ask(5)
        accepting = threading.Timer(0.5, lambda: earlier.append(accept(first)))
        earlier: list[int] = []
        accepting.start()
        second = listen(of_second, port)
        handover.give_to_second(address, port, of_first)
        accepting.join()
        assert earlier == [5]
        ask(40)
        assert (accept(first), accept(second)) == (0, 40)
        for number, each in enumerate(first):
            each.close()
            ask(20)
            assert accept(first[number + 1 :]) == 0
        assert accept(second) == 20 * of_first


def test_a_silence_is_announced_with_its_length() -> None:
    said = announce_silence(12.3, "for a reason")
    assert said.startswith("nobody is answered for about 12 s") and "(for a reason)" in said
    assert "for some seconds" in announce_silence(0, "for a reason")
