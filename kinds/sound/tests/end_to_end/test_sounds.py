"""The pipeline of sounds, held against plain PyTorch; and what it refuses."""

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bundle_client import Client, SoundRefused
from bundle_client.server import Protocol
from bundle_serving.infer import ask
from kinds.sound import drawings
from kinds.sound.drawings import NAMES
from kinds.sound.serving import wav
from kinds.sound.tests.by_pytorch import sounds_by_pytorch
from kinds.sound.tests.wav_files import BELL, made
from tests import axe
from tests.project import Project, error_lines
from tests.screens import page
from tests.screens.chromium import browser

CODINGS = ((wav.PCM, 16), (wav.PCM, 24), (wav.FLOAT, 32), (wav.PCM, 8))


def varied() -> list[bytes]:
    """Twenty sounds, of which hardly two are recorded alike."""
    random, files = np.random.default_rng(7), []
    for number in range(20):
        rate = (8000, 16_000, 22_050, 44_100, 48_000)[number % 5]
        seconds = (0.4, 2, 3.1, 7)[number % 4]
        samples = drawings.drawing(number % len(NAMES), random, seconds, rate)
        coding, bits = CODINGS[number % len(CODINGS)]
        files.append(made(samples.astype(float), coding, bits, 1 + number % 2, rate))
    return files


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_answers_match_pytorch(with_sounds: Project, listener: Path, protocol: Protocol) -> None:
    """Each by itself, at the same time."""
    files = varied()
    expected = sounds_by_pytorch(listener, files)
    with Client(getattr(with_sounds, protocol), protocol) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda file: client.hear(file, top=len(NAMES)), files))
    for found, known in zip(answers, expected, strict=True):
        likely = {label.index: label.probability for label in found.labels}
        assert found.labels[0].label == f"drawn {NAMES[found.labels[0].index]}"
        assert np.abs([likely[n] - known[n] for n in range(len(NAMES))]).max() < 0.01


def test_how_right_it_is_on_labelled_sounds(with_sounds: Project, tmp_path: Path) -> None:
    for number, file in enumerate(varied()[: 2 * len(NAMES)]):
        of_class = tmp_path / f"drawn {NAMES[number % len(NAMES)]}"
        of_class.mkdir(exist_ok=True)
        (of_class / f"{number}.wav").write_bytes(file)
    found = json.loads(with_sounds.made("eval", MODEL="sounds", EVAL=str(tmp_path), JSON="1"))
    assert found["items"] == min(20, 2 * len(NAMES)) and found["right"]["value"] > 0.5
    assert found["original"] is None


def test_several_sounds_in_one_request(with_sounds: Project, listener: Path) -> None:
    """Padded to the longest file, and to the longest sound."""
    files = varied()[:6]
    longest = max(map(len, files))
    sent = np.array([list(file.ljust(longest, b"\0")) for file in files], np.uint8)
    connection = http.client.HTTPConnection(with_sounds.http, timeout=60)
    answer = ask(connection, "sounds", {"INPUT": sent})["OUTPUT"]
    assert np.abs(answer - sounds_by_pytorch(listener, files)).max() < 0.01


def post(project: Project, path: str, body: bytes, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(project.http, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, body, sent)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


BAD = {
    "text.wav": (b"What a day, is it not?", "not a WAV file"),
    "header.wav": (BELL.read_bytes()[:30], "its format is cut off"),
    "nothing.wav": (made(np.zeros(0)), "the sound has no samples"),
    "long.wav": (made(np.zeros(600 * 4000), wav.PCM, 8, rate=4000), "takes 600.0 s, more than"),
    "nan.wav": (made(np.array([0.1, np.nan] * 500), wav.FLOAT, 32), "contains NaN or infinity"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_usable_sound_is_the_callers_fault(with_sounds: Project, name: str) -> None:
    file, cause = BAD[name]
    status, body = post(with_sounds, "/classify?model=sounds", file)
    assert status == 400 and cause in json.loads(body)["error"]["cause"]
    raw = {"Inference_Header_Content_Length": "0"}
    status, body = post(with_sounds, "/v2/models/sounds/infer", file, **raw)
    assert status == 400 and cause in json.loads(body)["error"] and "Traceback" not in body
    with Client(with_sounds.http) as client, pytest.raises(SoundRefused, match=cause):
        client.hear(file)


def test_curl_takes_sounds_too(with_sounds: Project) -> None:
    status, body = post(with_sounds, "/classify?model=sounds&top=2", BELL.read_bytes())
    labels = json.loads(body)["labels"]
    assert status == 200 and len(labels) == 2 and labels[0]["label"] == "drawn bell"


def test_the_command_answers_what_it_can_and_refuses_the_rest(
    with_sounds: Project, tmp_path: Path
) -> None:
    drawings.main(tmp_path)
    (tmp_path / "notes.txt").touch()
    model = {"MODEL": "sounds"}
    told = with_sounds.made("classify", SOUND=str(tmp_path), JSON="1", TOP="2", **model)
    answers = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert [Path(each["source"]).stem for each in answers] == sorted(NAMES)
    assert {len(each["labels"]) for each in answers} == {2}
    right = [each["labels"][0]["label"] == f"drawn {Path(each['source']).stem}" for each in answers]
    assert sum(right) >= 7
    for name, (file, _) in BAD.items():
        (tmp_path / name).write_bytes(file)
    (tmp_path / "empty.wav").touch()
    named = " ".join(str(tmp_path / name) for name in ("bell.wav", *BAD, "empty.wav", "gone.wav"))
    done = with_sounds.make("classify", SOUND=named, **model)
    assert done.returncode and "drawn bell" in done.stdout
    refused = error_lines(done.stderr)
    assert len(refused) == len(BAD) + 2
    for line, cause in zip(
        refused, [*(cause for _, cause in BAD.values()), "it is empty", "no such file"], strict=True
    ):
        assert cause in line and "; " in line
    assert "no sound given" in with_sounds.make("classify", **model).stderr


STEPS = ["Upload", "Decode, bands", "Neural network", "Labels", "Answer", "Wire, browser"]


def test_the_page_shows_and_plays_a_sound_with_its_labels(
    with_sounds: Project, tmp_path: Path
) -> None:
    with browser(tmp_path) as tab:
        tab.look()
        page.opened(tab, with_sounds.settings["HTTP_PORT"], "sounds")
        tab.drop(BELL)
        page.until_answered(tab)
        assert tab.text("#ask-title") == "What's to be heard?"
        assert tab.text("#choose") == "Choose sounds"
        assert tab.text(".labels li").split("\n")[0] == "drawn bell"
        assert tab.text("#spoken").startswith("bell.wav: drawn bell, ")
        assert tab.until("document.querySelector('.wave path')?.getAttribute('d').length > 1000")
        assert tab.text(".spans").splitlines()[::2] == with_sounds.list_reported(STEPS)
        player = "document.querySelector('audio')"
        seconds = tab.until(f"{player}.duration")
        assert seconds == 1
        tab.run(f"{player}.muted = true")
        tab.run(f"{player}.play()")
        tab.until(f"{player}.currentTime > 0")
        tab.run("document.querySelector('.copies button').click()")
        assert "classify?model=sounds" in tab.text(".copies pre")
        for dark in (False, True):
            tab.look(dark=dark)
            assert axe.violations(tab, axe.script()) == []
        tab.look(width=360, height=700)
        assert tab.run("document.documentElement.scrollWidth") <= 360
        assert tab.console == []
        for count, name in enumerate(("text.wav", "long.wav"), 2):
            file, cause = BAD[name]
            (tmp_path / name).write_bytes(file)
            tab.drop(tmp_path / name)
            page.until_answered(tab, count)
            assert cause.lower() in tab.text(".error b").lower() and "ffmpeg" in tab.text(
                ".error span"
            )
