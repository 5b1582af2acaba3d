"""The embeddings service's processes, and what they serve."""

import os
import subprocess
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
import yaml
from google.protobuf import text_format

from bundle_door.__main__ import arguments
from bundle_door.settings import NOTHING
from bundle_serving.pictures import Transform
from bundle_serving.protocol.kserve import ModelConfig
from extensions.similar import service
from scripts.base import interrupts
from scripts.base.errors import UserError
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks.state import State
from tests.networks import means
from tests.project import ROOT


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its files are here, and its processes none that run."""
    monkeypatch.setattr(service, "RUN", tmp_path / f"embeddings_{os.getpid()}")
    monkeypatch.setattr(service, "EARLIER", tmp_path / "earlier" / service.RUN.name)
    monkeypatch.setattr(service, "SHM_PREFIX", f"{service.RUN.name}_")
    for name in ("STATE", "LOG"):
        monkeypatch.setattr(service, name, tmp_path / name)
    return tmp_path


def show(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """As the only process one that has ended, with this command."""
    program = subprocess.Popen(["true"])
    ended = psutil.Process(program.pid)
    program.wait()
    monkeypatch.setattr(psutil, "process_iter", lambda: [ended])
    monkeypatch.setattr(service, "list_words", lambda _: [*words])


# Of the release before the keeper kept this service.
EARLIER_WORDS = "bundle_keeper.afresh --go-on python -m bundle_serving.embedding_service --run-dir"


@pytest.mark.parametrize(
    ("folder", "words"), [("RUN", [service.KEEPER]), ("EARLIER", EARLIER_WORDS.split())]
)
def test_who_has_ended_meanwhile_is_stopped(
    apart: Path, monkeypatch: pytest.MonkeyPatch, folder: str, words: list[str]
) -> None:
    """As where two commands stop it at once."""
    run = getattr(service, folder)
    run.mkdir(parents=True)
    show(monkeypatch, *words, str(run))
    left = Path(f"/dev/shm/{service.SHM_PREFIX}region")
    left.touch()
    assert service._stop_processes()
    assert not left.exists() and not run.exists()


def test_only_its_own_processes_are_stopped(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who reads its log."""
    show(monkeypatch, "tail", "-f", str(ROOT / "build" / "run" / "embeddings.log"))
    assert not service._stop_processes()


def test_it_keeps_no_pictures_where_the_server_does(
    apart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEEP", "1%")
    monkeypatch.setattr(interrupts, "start_apart", started := Mock())
    started.return_value.pid = 1
    service._start_process(State("local", "", {"KEEP": "1%", "EMBEDDINGS_PORT": "8123"}))
    command, _, environment = started.call_args.args
    assert command[command.index("--http-port") + 1] == "8123"
    monkeypatch.setenv("KEEP", environment["KEEP"])
    assert arguments().parse_args(["--run-dir=/run"]).keep == NOTHING


def test_its_container_keeps_none_either_and_has_the_same_model() -> None:
    services = yaml.safe_load((ROOT / "compose.extra.yaml").read_text())["services"]
    words = services["embeddings"]["command"]
    assert words[: words.index("python3")] == ["env", "KEEP="]
    assert f"--load-model={service.MODEL}" in words
    assert {"--grpc-port=0", "--metrics-port=0"} <= {*words}
    folder = service.REPOSITORY.relative_to(ROOT)
    assert f"./{folder}:/models:ro" in services["embeddings"]["volumes"]


def test_what_is_laid_out_has_the_settings(tmp_path: Path) -> None:
    made, repository = means(tmp_path), tmp_path / "models"
    settings = Settings(DEFAULTS | {"CORES": "6", "DECODE": "full", "MAX_MEGAPIXELS": "7"})
    service.lay_out(made, settings, repository)
    assert [each.name for each in repository.iterdir()] == [service.MODEL]
    model = repository / service.MODEL
    config = text_format.Parse((model / "config.pbtxt").read_text(), ModelConfig())
    assert config.name == service.MODEL and config.output[0].dims == [3]
    threads = int(config.parameters["threads"].string_value)
    assert threads * config.instance_group[0].count == 6
    how = Transform.load(model / "1" / "transform.json")
    assert (how.decode, how.max_megapixels) == ("full", 7)
    assert all(each.stat().st_mode & 0o444 == 0o444 for each in repository.rglob("*"))


def test_a_network_that_is_not_whole_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UserError):
        service.lay_out(tmp_path, Settings(DEFAULTS), tmp_path / "models")
