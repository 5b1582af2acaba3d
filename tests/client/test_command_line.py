"""The command as users run it: a process of its own."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.client.stand_in import StandIn

COMMAND = [sys.executable, "-m", "bundle_client"]


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, timeout=60)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for number in range(20):
        (tmp_path / f"{number:02}.jpg").write_bytes(b"bad" if number == 7 else b"mug")
    return tmp_path


def test_a_picture(stand_in: StandIn, pictures: Path) -> None:
    done = run("--url", stand_in.url, str(pictures / "00.jpg"))
    assert done.returncode == 0
    assert b"75.00%" in done.stdout
    assert done.stdout.count(b"\n") == 2
    assert done.stderr == b""


def test_standard_input_and_the_address_from_the_environment(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUNDLE_URL", stand_in.url)
    done = run("--json", "-", stdin=b"from a pipe")
    answer = json.loads(done.stdout)
    assert (answer["source"], answer["labels"][0]["label"]) == ("-", "from a pipe")


def test_a_folder_with_one_bad_picture(stand_in: StandIn, pictures: Path) -> None:
    done = run("--url", stand_in.url, str(pictures))
    assert done.returncode == 1
    assert done.stdout.count(b"mug\n") == 19
    error, summary = done.stderr.decode().splitlines()
    assert error == f"error: {pictures}/07.jpg: not a picture; send one"
    assert summary.startswith("19 answered, 1 failed, ")


def test_answers_go_to_one_place(stand_in: StandIn, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.csv"
    done = run("--json", "--out", str(out), "--url", stand_in.url, str(pictures))
    assert done.returncode == 2
    assert b"argument --out: not allowed with argument --json" in done.stderr
    assert not out.exists()


def test_json_has_a_line_for_each_picture_in_order(stand_in: StandIn, pictures: Path) -> None:
    done = run("--json", "--url", stand_in.url, str(pictures))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Path(a["source"]).stem for a in answers] == [f"{n:02}" for n in range(20)]
    assert [n for n, answer in enumerate(answers) if "error" in answer] == [7]
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_nobody_listens(protocol: str, closed_port: int, pictures: Path) -> None:
    url = f"127.0.0.1:{closed_port}"
    done = run("--protocol", protocol, "--url", url, str(pictures))
    assert done.returncode == 3
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"error: {url}: connection refused; ")


def test_an_unknown_model_is_reported_once(stand_in: StandIn, pictures: Path) -> None:
    done = run("--model", "x", "--url", stand_in.url, str(pictures))
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--top", "0", "x.jpg"],
        ["--top", "x", "x.jpg"],
        ["--concurrency", "0", "x.jpg"],
        ["--timeout", "0", "x.jpg"],
        ["--timeout", "inf", "x.jpg"],
        ["--timeout", "nan", "x.jpg"],
        ["--api-key", "ключ", "x.jpg"],
        ["--url", "ftp://x", "x.jpg"],
        ["--protocol", "ftp", "x.jpg"],
        ["--nonsense"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(b"usage: ")
    assert done.stdout == b""


def test_a_closed_standard_input() -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(COMMAND)} - <&-"], capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.endswith(b"standard input, which is closed here\n")


def test_a_file_of_certificates_that_is_not_there(pictures: Path) -> None:
    for protocol in ("http", "grpc"):
        done = run("--protocol", protocol, "--ca-file", "nowhere.pem", str(pictures / "00.jpg"))
        assert done.returncode in (1, 3)
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith("error: ")


def test_a_full_disk(stand_in: StandIn, pictures: Path) -> None:
    for words in ([], ["--json"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*COMMAND, *words, "--url", stand_in.url, str(pictures / "00.jpg")],
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=60,
            )
        assert done.returncode == 1
        assert done.stderr == b"error: the answers cannot be written: No space left on device\n"


def test_a_file_name_that_is_no_text(stand_in: StandIn, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.jpg"
    Path(os.fsdecode(name)).write_bytes(b"mug")
    done = subprocess.run(
        [*COMMAND, "--url", stand_in.url, name, name + b"none"], capture_output=True, timeout=60
    )
    assert done.returncode == 1
    assert b"\\udcff.jpg" in done.stdout
    assert done.stderr.count(b"\n") == 1


def test_ctrl_c_ends_at_once_and_quietly(stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(b"mug")
    (tmp_path / "1.jpg").write_bytes(b"silent")
    process = subprocess.Popen(
        [*COMMAND, "--json", "--url", stand_in.url, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert errors == b""
    assert time.monotonic() - started < 8


def test_a_reader_that_leaves_is_no_error(stand_in: StandIn, pictures: Path) -> None:
    (pictures / "01.jpg").write_bytes(b"silent")
    process = subprocess.Popen(
        [*COMMAND, "--url", stand_in.url, str(pictures)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    stand_in.drip.set()  # only now is the next picture answered
    assert process.stderr is not None
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait(timeout=10) == 141


def test_a_closed_standard_output(stand_in: StandIn, pictures: Path, tmp_path: Path) -> None:
    words = ["--url", stand_in.url, "--out", str(tmp_path / "a.jsonl"), str(pictures / "00.jpg")]
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join([*COMMAND, *words])} >&-"], capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr[:10]) == (0, b"1 answered")


def test_a_closed_standard_error(stand_in: StandIn, pictures: Path) -> None:
    """What would be said there, of the eighth, does not end the run."""
    words = [*COMMAND, "--url", stand_in.url, "--json", str(pictures)]
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(words)} 2>&-"], stdout=subprocess.PIPE, timeout=60
    )
    assert (done.returncode, done.stdout.count(b"\n")) == (1, 20)


def test_a_file_of_certificates_in_an_empty_variable(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUNDLE_CA_FILE", "")
    assert run("--url", stand_in.url, "-", stdin=b"from a pipe").returncode == 0


def test_a_missing_file_of_certificates_is_reported_once(stand_in: StandIn, pictures: Path) -> None:
    done = run("--url", stand_in.url, "--ca-file", "nowhere.pem", str(pictures))
    assert done.returncode == 3
    assert done.stderr.startswith(b"error: nowhere.pem holds no certificates")
    assert done.stderr.count(b"\n") == 1


def test_an_empty_path(stand_in: StandIn) -> None:
    done = run("--url", stand_in.url, "")
    assert done.stderr == b"error: the path is empty; name a file\n"
