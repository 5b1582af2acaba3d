"""Requests to a real server are kept, copied, labelled, asked again, encrypted and forgotten."""

import io
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from scripts.artefacts.picture import mug
from scripts.base import parts
from tests.project import Project, error_lines, free_ports, interrupt, wait_until
from tests.surroundings import aws_roles


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory, exported: Path) -> Iterator[Project]:
    settings = {"FLAVOUR": "local", "KEEP": "100%", "KEEP_MB": "50"}
    project = Project.copy(tmp_path_factory.mktemp("keeping"), **settings)
    project.take(exported)
    project.made("up", KEEP="")
    project.made("up")  # beside the one before
    yield project
    project.end()


def draw(number: int) -> bytes:
    content = io.BytesIO()
    mug().rotate(30 * number).convert("RGB").save(content, "JPEG")
    return content.getvalue()


def ask(project: Project, id: str, picture: bytes) -> str:
    url = f"http://{project.http}/classify"
    request = urllib.request.Request(url, picture, {"x-request-id": id})
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["labels"][0]["label"])


def store(project: Project) -> Path:
    return project.path / "build" / "run" / "capture"


def read_lines(project: Project) -> str:
    return "".join(path.read_text() for path in store(project).glob("*.jsonl"))


def count_kept(project: Project) -> int:
    return len(read_lines(project).splitlines())


def read_until(make: subprocess.Popen[str], words: str) -> None:
    assert make.stdout and any(words in line for line in make.stdout)


def test_what_was_asked_is_kept_copied_and_forgotten(keeping: Project, tmp_path: Path) -> None:
    assert "nothing was kept" in keeping.made("captured")  # nor what make up itself has asked
    called = {
        f"photo-{number}": ask(keeping, f"photo-{number}", draw(number)) for number in range(6)
    }
    wait_until(lambda: count_kept(keeping) == 6, "what is kept")
    assert " 6 " in keeping.made("captured")

    assert "copied 6 requests" in keeping.made("captured", TO=str(tmp_path / "all"))
    (lines,) = (tmp_path / "all").glob("*.jsonl")
    for record in map(json.loads, lines.read_text().splitlines()):
        assert called[record["id"]] == record["labels"][0][0]
        Image.open(tmp_path / "all" / record["file"]).verify()

    labelled = tmp_path / "labelled"
    assert "copied 4 pictures" in keeping.made("captured", TO=str(labelled), MOST="4")
    for path in labelled.rglob("*.jpg"):
        assert called[path.stem] == path.parent.name
    assert "100.0% right" in keeping.made("eval", EVAL=str(labelled))

    assert "removed 1 requests" in keeping.made("captured", FORGET="photo-3")
    assert count_kept(keeping) == 5
    (line,) = error_lines(keeping.make("captured", FORGET="photo-3").stderr)
    assert "nothing was kept" in line
    (line,) = error_lines(keeping.make("captured", TO=str(labelled)).stderr)
    assert "exists" in line


def test_what_was_kept_is_asked_again(keeping: Project, tmp_path: Path) -> None:
    for number in range(3):
        ask(keeping, f"again-{number}", draw(number))
    wait_until(lambda: "again-2" in read_lines(keeping), "what is kept")
    keeping.made("captured", TO=str(tmp_path / "all"))
    before = count_kept(keeping)
    told = keeping.made("replay", OF=str(tmp_path / "all"), SPEED="1000")
    assert re.search(r"0 of (\d+) labels changed", told) and "core hours" in told
    assert re.search(r"refused +0 +0\n", told)
    keeping.made("replay", SPEED="1000")
    assert count_kept(keeping) == before  # what is asked again is not kept again

    (tmp_path / "log.txt").write_text(keeping.made("logs"))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(draw(1))
    log = {"OF": str(tmp_path / "log.txt"), "SPEED": "1000"}
    assert re.search(
        r"refused +0 +0\n", keeping.made("replay", IMAGES=str(tmp_path / "photos"), **log)
    )
    (line,) = error_lines(keeping.make("replay", **log).stderr)
    assert "IMAGES=photos" in line


@pytest.mark.rare
def test_another_version_is_asked_again(keeping: Project) -> None:
    ask(keeping, "again", draw(1))
    assert "published: version 2" in keeping.made("publish", MAX_MEGAPIXELS="40")
    told = keeping.made("replay", VERSION="2", SPEED="1000")
    assert re.search(r"0 of (\d+) labels changed", told)
    assert "version 1" in keeping.made("status") or " v1 " in keeping.made("status")
    assert "_candidate" not in keeping.made("models")
    before = count_kept(keeping)
    keeping.made("rollout", WATCH_SECONDS="1", MAX_P99_RATIO="20")
    assert count_kept(keeping) == before  # of what a rollout asks, nothing is kept


@pytest.mark.rare
@pytest.mark.skipif(not parts.find("place"), reason="nothing here knows S3")
def test_a_copy_on_s3_grows_and_forgets(keeping: Project, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    url = f"s3://http://127.0.0.1:{port}/{aws_roles.BUCKET}/kept"
    ask(keeping, "first", draw(8))
    wait_until(lambda: "first" in read_lines(keeping), "what is kept")
    (line,) = error_lines(keeping.make("captured", TO=url, **keys).stderr)
    assert "nothing is listening at" in line
    with aws_roles.knowing_roles("127.0.0.1", port, tmp_path / "moto.log"):
        assert f"copied {count_kept(keeping)} requests" in keeping.made("captured", TO=url, **keys)
        picture = draw(9)
        ask(keeping, "second", picture)
        wait_until(lambda: "second" in read_lines(keeping), "what is kept")
        assert "copied 1 requests" in keeping.made("captured", TO=url, **keys)
        assert "copied 0 requests" in keeping.made("captured", TO=url, **keys)
        keeping.made("captured", OF=url, TO=f"{tmp_path}/fetched", **keys)
        keeping.made("captured", TO=f"{tmp_path}/copied")
        contents = [
            {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}
            for folder in (tmp_path / "fetched", tmp_path / "copied")
        ]
        assert contents[0] == contents[1] and picture in contents[0].values()
        assert re.search(r"refused +0 +0\n", keeping.made("replay", OF=url, SPEED="1000", **keys))
        assert "removed 1 requests" in keeping.made("captured", OF=url, FORGET="second", **keys)
        keeping.made("captured", OF=url, TO=f"{tmp_path}/less", **keys)
        files = [path.read_bytes() for path in (tmp_path / "less").rglob("*.*")]
        assert picture not in files and not any(b"second" in each for each in files)


@pytest.mark.rare
@pytest.mark.skipif(not parts.find("place"), reason="nothing here knows S3")
def test_what_comes_moves_to_s3_when_that_is_there(keeping: Project, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    url, log = f"s3://http://127.0.0.1:{port}/{aws_roles.BUCKET}/kept", tmp_path / "moto.log"
    (line,) = error_lines(keeping.make("captured", TO=str(tmp_path), FOLLOW="1").stderr)
    assert "TO=s3://bucket/kept" in line
    with aws_roles.knowing_roles("127.0.0.1", port, log):
        moving = keeping.start_make("captured", TO=url, FOLLOW="1", **keys)
        try:
            ask(keeping, "moves", draw(10))
            wait_until(lambda: "moves" in read_lines(keeping), "what is kept")
            wait_until(lambda: not read_lines(keeping), "it to be on S3 alone", 60)
            found = keeping.made("captured", OF=url, TO=f"{tmp_path}/moved", **keys)
        except BaseException:
            interrupt(moving)
            raise
    assert "copied" in found and not [*store(keeping).rglob("*.jpg")]
    assert b"moves" in b"".join(path.read_bytes() for path in (tmp_path / "moved").glob("*.jsonl"))
    ask(keeping, "waits", draw(11))  # nothing is there now
    wait_until(lambda: "waits" in read_lines(keeping), "what is kept")
    read_until(moving, "requests wait")
    with aws_roles.knowing_roles("127.0.0.1", port, log):
        wait_until(lambda: not read_lines(keeping), "it to be on S3 alone", 120)
        read_until(moving, "moved 1 requests that had waited")
        output = interrupt(moving)
    assert "Traceback" not in output and "moved" in output


def test_what_is_encrypted_needs_the_key(keeping: Project, tmp_path: Path) -> None:
    key, before = tmp_path / "capture.key", count_kept(keeping)
    keeping.made("captured", SEAL=str(key))
    picture = draw(7)
    ask(keeping, "secret", picture)
    wait_until(lambda: count_kept(keeping) == before + 1, "what is kept")
    written = b"".join(path.read_bytes() for path in store(keeping).rglob("*.*"))
    assert picture not in written
    (line,) = error_lines(keeping.make("captured", TO=str(tmp_path / "copy")).stderr)
    assert "KEY=capture.key" in line and not (tmp_path / "copy").exists()
    keeping.made("captured", TO=str(tmp_path / "copy"), KEY=str(key))
    assert picture in [path.read_bytes() for path in (tmp_path / "copy").rglob("*.jpg")]
    keeping.made("captured", FORGET="secret")


def test_a_wrong_setting_is_told(keeping: Project) -> None:
    (line,) = error_lines(keeping.make("up", KEEP="some").stderr)
    assert "KEEP=some must be one or more of 1%" in line
