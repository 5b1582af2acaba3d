"""The first seconds of the first command, before anything is installed."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from scripts import bootstrap
from scripts.base import layers
from scripts.base.errors import UserError
from scripts.program import folder
from tests.project import ROOT


def copy_bootstrap(to: Path) -> None:
    for name in ("scripts/__init__.py", "scripts/bootstrap.py", "scripts/base", "requirements"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        (to / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, to / name)


def test_what_takes_long_is_announced_first(tmp_path: Path) -> None:
    copy_bootstrap(tmp_path)
    python = tmp_path / "python3"  # it tells its version, and stops at all else
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && echo 3 12\n')
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bootstrap", "tools"],
        cwd=tmp_path,
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"- creating a virtual environment in .venv with {python} …\n"
    assert "cannot create a virtual environment" in done.stderr


def test_its_folder_can_be_moved(tmp_path: Path) -> None:
    was, now = tmp_path / "was", tmp_path / "now"
    was.mkdir()
    copy_bootstrap(was)
    for name in ("serving/bundle_serving", "client/bundle_client"):
        (was / name).mkdir(parents=True)
        (was / name / "__init__.py").touch()
    python = tmp_path / "python3"  # it has no pip: then nothing is installed
    python.write_text(f"""#!/bin/sh
[ "$1" = -m ] && exec {sys.executable} "$@" --without-pip
exec {sys.executable} "$@"
""")
    python.chmod(0o755)
    chosen = os.environ | {"PYTHON": str(python)}
    subprocess.run([sys.executable, "-m", "scripts.bootstrap", "tools"], cwd=was, env=chosen)
    was.rename(now)
    finds = [f"{now}/.venv/bin/python", "-c", "import bundle_client, bundle_serving"]
    subprocess.run(finds, cwd=tmp_path, check=True)


@pytest.mark.parametrize("became", ["gone", "another"])
def test_an_environment_without_its_python_is_told(became: str, tmp_path: Path) -> None:
    """As where the system has a later one since."""
    copy_bootstrap(tmp_path)
    shutil.copy(ROOT / "Makefile", tmp_path)
    venv = tmp_path / ".venv"
    for name in (f"lib/python3.8/site-packages/{bootstrap.OURS}", "layers/tools", "bin/more"):
        (venv / name).parent.mkdir(parents=True)
        (venv / name).touch()
    python = Path(sys.executable).resolve() if became == "another" else tmp_path / "python3.8"
    (venv / "bin" / "python").symlink_to(python)
    done = subprocess.run(["make", "status"], cwd=tmp_path, capture_output=True, text=True)
    line, _ = done.stderr.splitlines()
    assert "the Python that .venv was made with is gone; rm -r .venv" in line
    assert not folder.is_installed("tools", tmp_path)


def test_lint_is_for_a_clone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    command = ["make", "-o", ".venv/layers/check", "lint"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    line, _ = done.stderr.splitlines()
    assert line == "error: lint asks git which files there are; run it in a clone"


def test_a_python_is_chosen_where_the_environment_is_made() -> None:
    bootstrap.require_chosen(sys.executable)
    with pytest.raises(UserError, match=r"^PYTHON=/nowhere is not the Python 3"):
        bootstrap.require_chosen("/nowhere")


def test_links_that_an_interrupted_run_left_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As .venv/lib64 is one."""
    (venv := tmp_path / ".venv").mkdir()
    (elsewhere := tmp_path / "lib").mkdir()
    (venv / "lib64").symlink_to(elsewhere)
    monkeypatch.setattr(bootstrap, "VENV", venv)
    monkeypatch.setattr(bootstrap, "_find_python", lambda: "false")
    with pytest.raises(UserError, match="cannot create a virtual environment"):
        bootstrap._create()
    assert elsewhere.is_dir() and not any(venv.iterdir())


@pytest.mark.parametrize("is_link", [False, True])
def test_an_environment_of_the_users_own_stays(
    is_link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / ("mine" if is_link else ".venv")
    (theirs / "bin").mkdir(parents=True)
    if is_link:
        (tmp_path / ".venv").symlink_to(theirs)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "STAMPS", tmp_path / ".venv" / "layers")
    monkeypatch.setattr(bootstrap, "_find_python", lambda: "false")
    with pytest.raises(UserError, match="that make did not make"):
        bootstrap.ensure("tools")
    assert [path.name for path in theirs.iterdir()] == ["bin"]
    (theirs / "lock").touch()  # what an interrupted run of ours left
    with pytest.raises(UserError, match="cannot create a virtual environment"):
        bootstrap.ensure("tools")


def test_a_full_disk_is_no_missing_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Error: [Errno 28] No space left on device: '/bundle/.venv/lib'\n"
    for why, remedy in (
        (said, "make room"),
        ("ensurepip is not available", "apt-get install"),
        ("Error: Refusing to create a venv in /a:b/.venv", "a path without ':'"),
        ("Error: [Errno 1] Operation not permitted: '/a/.venv/lib64'", "a disk that has links"),
    ):
        done = subprocess.CompletedProcess[str]([], 1, why, "")
        monkeypatch.setattr(bootstrap, "VENV", tmp_path)
        monkeypatch.setattr(bootstrap, "_find_python", lambda: sys.executable)
        monkeypatch.setattr(bootstrap, "_version_of", lambda _: (3, 11))
        with monkeypatch.context() as instead, pytest.raises(UserError) as refused:
            instead.setattr(subprocess, "run", lambda *_, done=done, **__: done)
            bootstrap._create()
        assert refused.value.remedy.startswith(remedy) or remedy in refused.value.remedy


def test_what_was_installed_by_half_is_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    files = ("onnx-1.dist-info/METADATA", "uv-1.dist-info/METADATA", "pip-1.dist-info/INSTALLER")
    commands: list[Sequence[object]] = []

    def fail(command: Sequence[object], **_: object) -> subprocess.CompletedProcess[str]:
        assert not list(packages.glob("*/METADATA"))
        commands.append(command)
        (packages / files[0]).parent.mkdir()
        (packages / files[0]).touch()
        return subprocess.CompletedProcess([], 1)

    def check(words: list[str]) -> None:
        assert not list(packages.glob("*/METADATA"))

    for name in (bootstrap.OURS, *files, "../../../bin/uv"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).touch()
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "STAMPS", tmp_path / "layers")
    monkeypatch.setattr(bootstrap, "pip_settings", dict)
    monkeypatch.setattr(bootstrap, "_pip", check)
    monkeypatch.setattr(subprocess, "run", fail)
    bootstrap._install("tools")
    assert len(commands) == 1 and "pip" in commands[0]  # asked for uv
    assert (packages / files[2]).exists()


@pytest.mark.parametrize("index", ["http://a b", "http://127.0.0.1:port", "http://nowhere.invalid"])
def test_an_index_that_is_none_is_done_without(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_INDEX", index)
    assert bootstrap.torch_index() == ""


@pytest.mark.parametrize(("status", "is_taken"), [(200, True), (401, True), (404, False)])
def test_an_index_may_ask_for_a_password(
    status: int, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which pip sends, that of its address."""

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/whl/torch/"
            self.send_response(status)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.handle_request, daemon=True).start()
    index = f"http://me:secret@127.0.0.1:{server.server_port}/whl"
    monkeypatch.setenv("TORCH_INDEX", index)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert bootstrap.torch_index() == (index if is_taken else "")
    server.server_close()


def test_a_layer_is_installed_again_where_what_it_brings_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = {layer: bootstrap.digest(layer) for layer in ("tools", "serve", "check")}
    monkeypatch.setattr(layers, "HOMES", layers.HOMES[:2])  # no kind and no extension
    assert {each for each in before if bootstrap.digest(each) != before[each]} == {"check"}


def test_pips_settings_are_passed_to_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pip config list` shows those of the machine, the user and the environment."""
    lines = [
        ":env:.index-url='https://me:secret@four/simple'",
        "global.cert='/company.pem'",
        "global.constraint='/company.txt'",
        "global.find-links='/one /two'",
        "global.index-url='https://one/simple'",
        r"install.extra-index-url='\nhttps://two/simple\nhttps://three/simple'",
    ]
    said = subprocess.CompletedProcess[str]([], 0, "\n".join(lines))
    with monkeypatch.context() as instead:
        instead.setattr(subprocess, "run", lambda *_, **__: said)
        settings = bootstrap.pip_settings()
    assert bootstrap.for_uv(settings) == {
        "SSL_CERT_FILE": "/company.pem",
        "UV_CONSTRAINT": "/company.txt",
        "UV_DEFAULT_INDEX": "https://me:secret@four/simple",
        "UV_EXTRA_INDEX_URL": "https://two/simple https://three/simple",
        "UV_FIND_LINKS": "/one,/two",
    }
    no_like_in_uv = {"no-binary": "numpy"}
    assert bootstrap.for_uv(settings | no_like_in_uv) is None


def test_pips_settings_are_asked_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in filter(re.compile("PIP_").match, list(os.environ)):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # none of this machine's
    monkeypatch.setenv("PIP_INDEX_URL", "https://one/simple")
    assert bootstrap.for_uv(bootstrap.pip_settings()) == {"UV_DEFAULT_INDEX": "https://one/simple"}


@pytest.mark.parametrize("uv_can", [True, False])
def test_no_password_is_on_a_command_line(
    uv_can: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[list[str], Mapping[str, str]]] = []

    def run(
        command: list[str], variables: Mapping[str, str] | None = None
    ) -> tuple[int, list[str]]:
        ran.append((command, variables or {}))
        return int(not uv_can and "uv" in command[0]), []

    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in (bootstrap.OURS, "uv-1.dist-info/INSTALLER"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).touch()
    index, mirror, torch = (f"https://me:secret@{host}/simple" for host in ("a", "b", "c"))
    settings = {"index-url": index, "extra-index-url": f"\n{mirror}\n{mirror}"}
    settings["constraint"] = "/c.txt"
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "STAMPS", tmp_path / "layers")
    monkeypatch.setattr(bootstrap, "pip_settings", lambda: settings)
    monkeypatch.setattr(bootstrap, "torch_index", lambda: torch)
    monkeypatch.setattr(bootstrap, "_run_shown", run)
    bootstrap._install("export")
    assert not any("secret" in word for command, _ in ran for word in command)
    last, variables = ran[-1]
    assert any(word.startswith("torch==") for word in last)
    name = "UV_EXTRA_INDEX_URL" if uv_can else "PIP_EXTRA_INDEX_URL"
    assert variables[name] == f"{mirror} {mirror} {torch}"  # uv takes no line ends between them
    if uv_can:  # with hashes uv takes no constraint, so whether they fit is asked before
        assert ["UV_CONSTRAINT" in given for _, given in ran] == [True, False, True]


def test_pip_says_why_no_index_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in filter(re.compile("PIP_").match, list(os.environ)):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "1")
    for name in ("NO_PROXY", "no_proxy"):  # of this machine's
        monkeypatch.setenv(name, "127.0.0.1")
    ask = [sys.executable, "-m", "pip", "download", "--dest", str(tmp_path), "torch==0"]
    for index, proxy, expected in (
        ("http://127.0.0.1:9/simple", "", "Connection refused; "),
        ("https://one.invalid/simple", "http://127.0.0.1:9", "Connection refused; "),
    ):
        monkeypatch.setenv("PIP_INDEX_URL", index)
        monkeypatch.setenv("PIP_PROXY", proxy)
        done = subprocess.run(ask, capture_output=True, text=True)
        assert bootstrap.find_broken(done.stderr.splitlines()) == expected, done.stderr
    assert bootstrap.find_broken(["ERROR: No matching distribution found for torch==0"]) == ""
