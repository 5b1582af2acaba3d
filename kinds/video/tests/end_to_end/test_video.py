"""Frames of videos, smoothed over time by a server that keeps many of them apart."""

import asyncio
import io
import json
import random
import socket
import subprocess
import threading
import urllib.error
import urllib.request
import wave
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from PIL import Image
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from bundle_client import AsyncClient, Client, ModelUnavailable, PictureRefused, Watched
from bundle_client.frames import Sequence as Frames
from bundle_serving import infer
from bundle_serving.address import Address
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from tests.end_to_end.keeping.test_keeper import subject
from tests.plugin import ON_A_GPU
from tests.project import LONGEST_S, ROOT, Project, error_lines, interrupt
from tests.watching import PICTURES, begun, client, watched

pytestmark = pytest.mark.parametrize("served", ["local", ON_A_GPU], indirect=True)

RECIPE = yaml.safe_load((ROOT / "kinds" / "video" / "video.yaml").read_text())
WEIGHT = RECIPE["smoothing"]


@pytest.fixture
def video(served: Project) -> Project:
    """The shared server with this pipeline, which is there from the first of these tests on."""
    served.made("up", MODEL="video")
    return served


def file(pixels: NDArray[np.uint8]) -> bytes:
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "PNG")
    return written.getvalue()


def unsmoothed(project: Project) -> list[NDArray[np.float64]]:
    """What each picture shows by itself."""
    connection = Address.parse(project.http).connection(60)
    questions = ({"INPUT": np.frombuffer(file(each), np.uint8)[None]} for each in PICTURES)
    answers = [infer.ask(connection, PIPELINE, each)["OUTPUT"][0] for each in questions]
    return [answer.astype(np.float64) for answer in answers]


def by_a_plain_loop(
    alone: Sequence[NDArray[np.float64]], order: Sequence[int]
) -> Iterator[NDArray[np.float64]]:
    average = alone[order[0]]
    for number in order:
        average = WEIGHT * alone[number] + (1 - WEIGHT) * average
        yield average


def assert_smoothed(
    alone: Sequence[NDArray[np.float64]], order: Sequence[int], found: Sequence[Watched]
) -> None:
    assert [each.number for each in found] == [*range(1, len(order) + 1)]
    assert [each.frames for each in found] == [*range(1, len(order) + 1)]
    for expected, each in zip(by_a_plain_loop(alone, order), found, strict=True):
        values = [label.probability for label in each.labels]
        np.testing.assert_allclose(values, np.sort(expected)[: -len(values) - 1 : -1], atol=0.01)
        np.testing.assert_allclose(values, expected[[x.index for x in each.labels]], atol=0.01)


def test_300_frames_are_smoothed_as_a_plain_loop_does(video: Project) -> None:
    order = [random.Random(1).randrange(len(PICTURES)) for _ in range(300)]
    with client(video) as asked:
        found = list(asked.watch(PICTURES[number] for number in order))
    assert_smoothed(unsmoothed(video), order, found)


def test_two_streams_at_once_never_mix_and_a_fault_is_of_one_alone(video: Project) -> None:
    """The second one's has a frame that is no picture, and goes on after it."""
    orders = [[random.Random(seed).randrange(6) + 6 * seed for _ in range(40)] for seed in (0, 1)]
    found: list[Any] = [[], []]

    def watch_whole() -> None:
        with client(video) as asked:
            found[0] = list(asked.watch(PICTURES[number] for number in orders[0]))

    def watch_with_a_fault() -> None:
        sequence = Frames(client(video).server, "video", 5)
        for place, number in enumerate(orders[1]):
            if place == 20:
                with pytest.raises(Exception, match="not a readable picture"):
                    sequence.ask(b"no picture")
            labels, frames = sequence.ask(file(PICTURES[number]))
            found[1].append(Watched(place + 1, labels, frames, 0))
        sequence.end()

    threads = [threading.Thread(target=each) for each in (watch_whole, watch_with_a_fault)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = unsmoothed(video)
    for order, each in zip(orders, found, strict=True):
        assert_smoothed(alone, order, each)


def test_the_asynchronous_client_watches_alike(video: Project) -> None:
    """Two videos at once in one thread, of frames that come asynchronously, or not; each is taken
    once the one before it is answered. Who leaves early gives the place on the server back."""
    orders = [[random.Random(seed).randrange(len(PICTURES)) for _ in range(20)] for seed in (2, 3)]
    taken: list[int] = []

    async def coming() -> AsyncIterator[NDArray[np.uint8]]:
        for number in orders[0]:
            taken.append(number)
            yield PICTURES[number]

    async def watch_some() -> list[Watched]:
        found: list[Watched] = []
        async for each in asked.watch(coming()):
            found.append(each)
            assert len(taken) == len(found)
        return found

    async def watch_others() -> list[Watched]:
        return [each async for each in asked.watch(PICTURES[number] for number in orders[1])]

    async def watch_both() -> Sequence[list[Watched]]:
        async with asked:
            found = await asyncio.gather(watch_some(), watch_others())
            async for _ in asked.watch(coming()):
                break
            with pytest.raises(PictureRefused, match=r"^<10 bytes>: "):
                [each async for each in asked.watch([b"no picture"])]
            return found

    asked = AsyncClient(video.grpc, protocol="grpc")
    alone = unsmoothed(video)
    for order, found in zip(orders, asyncio.run(watch_both()), strict=True):
        assert_smoothed(alone, order, found)
    with pytest.raises(ValueError, match="over gRPC"):
        AsyncClient(video.http).watch([PICTURES[0]])


def test_what_cannot_be_watched_is_refused_in_one_line(video: Project) -> None:
    with client(video) as asked:
        for _ in range(RECIPE["streams"] + 1):  # and each gives its place back
            with pytest.raises(PictureRefused, match=r"^<10 bytes>: "):
                list(asked.watch([PICTURES[0], b"no picture"]))
        with pytest.raises(ModelUnavailable, match="unknown model"):
            list(asked.watch([PICTURES[0]], model="radio"))
    with Client(video.http, model="video") as over_http:
        with pytest.raises(ModelUnavailable, match=r"takes frames of a sequence.*; use watch"):
            over_http.classify(PICTURES[0])
        with pytest.raises(ValueError, match="over gRPC"):
            over_http.watch([PICTURES[0]])


def test_a_sequence_that_the_server_does_not_know_begins_anew(video: Project) -> None:
    """As when its model was replaced."""
    sequence = Frames(client(video).server, "video", 5)
    sequence.ask(file(PICTURES[0]))
    assert sequence.ask(file(PICTURES[1]))[1] == 2
    sequence._number += 1
    assert [sequence.ask(file(PICTURES[2]))[1] for _ in range(2)] == [1, 2]
    sequence.end()


def test_a_stream_outlives_the_process_that_smooths_it(video: Project) -> None:
    (process,) = subject(video).running()["video_smoothing"]

    def frames() -> Iterator[NDArray[np.uint8]]:
        for number in range(20):
            if number == 10:
                process.kill()
            yield PICTURES[number % 3]

    with client(video) as asked:
        found = list(asked.watch(frames()))
    assert [each.frames for each in found] == [*range(1, 11)] * 2


def test_who_vanishes_frees_a_place_and_one_too_many_is_refused(video: Project) -> None:
    """With a recipe of one's own, for two streams, which are idle after a second."""
    recipe = yaml.safe_load((ROOT / "kinds" / "video" / "video.yaml").read_text())
    recipe["models"] |= {"ensemble": "brief", "smoothing": "brief_smoothing"}
    own = video.path / "own" / "recipes" / "brief.yaml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(yaml.safe_dump(recipe | {"streams": 2, "idle_s": 2}))
    picture = file(PICTURES[0])
    try:
        video.made("up", MODEL="brief")
        with client(video) as asked:
            both = [Frames(asked.server, "brief", 1) for _ in range(2)]
            for each in both:
                each.ask(picture)
            third = Frames(asked.server, "brief", 1)
            with pytest.raises(InferenceServerException, match="2 streams are watched already"):
                third.ask(picture)
            for each in both:
                each._hang_up()  # without a word
            (found,) = asked.watch([PICTURES[0]], model="brief")  # which waits for a place
            assert found.frames == 1
            with pytest.raises(InferenceServerException, match="must specify the START flag"):
                ask_alone(video, "brief", sequence_id=both[0]._number)
    finally:
        video.made("remove-model", NAME="brief")


def ask_alone(project: Project, model: str, picture: int = 0, **sequence: Any) -> int:
    """By a single request, over HTTP: how many frames are smoothed."""
    with InferenceServerClient(project.http) as asked:
        pixels = np.frombuffer(file(PICTURES[picture]), np.uint8)[None]
        tensor = InferInput("INPUT", list(pixels.shape), "UINT8")
        tensor.set_data_from_numpy(pixels)
        return int(asked.infer(model, [tensor], **sequence).as_numpy("FRAMES").item())


def test_sequences_may_have_names(video: Project) -> None:
    """As long as Triton takes them, and however they begin."""
    names = ["camera in the hall", "camera at the door", "c" * 128, "c" * 127]
    for count, flags in ((1, {"sequence_start": True}), (2, {}), (3, {"sequence_end": True})):
        for name in names:
            assert ask_alone(video, "video", sequence_id=name, **flags) == count
    with pytest.raises(InferenceServerException, match="must specify a non-zero or non-empty"):
        ask_alone(video, "video")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{video.http}/classify?model=video", file(PICTURES[0]))
    assert "with a sequence_id" in json.load(refused.value)["error"]["remedy"]


def clip(path: Path, frames: int = 30) -> Path:
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=30)
        stream.width = stream.height = 96
        stream.pix_fmt = "yuv420p"
        for number in range(frames):
            pixels = np.kron(PICTURES[number * 3 // frames], np.ones((2, 2, 1), np.uint8))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_make_watch_shows_and_writes(video: Project, tmp_path: Path) -> None:
    source, out = clip(tmp_path / "clip.mp4"), tmp_path / "out.mp4"
    done = video.make("watch", VIDEO=str(source), OUT=str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" 0:00.0  ") and 1 <= len(done.stdout.splitlines()) < 30
    assert "30 frames seen, 0 dropped, " in done.stderr
    with av.open(str(out)) as container:
        written = list(container.decode(video=0))
    assert len(written) == 30 and float(written[-1].time or 0) == pytest.approx(29 / 30, abs=0.01)
    # Its labels stand below, on black.
    assert written[5].to_ndarray(format="gray")[-3:, 1].max() < 60
    lines = video.made("watch", VIDEO=str(source), JSON="1", TOP="2").splitlines()
    each = [json.loads(line) for line in lines]
    assert [one["frame"] for one in each] == [one["smoothed"] for one in each] == [*range(1, 31)]
    assert {len(one["labels"]) for one in each} == {2}
    live = video.make("watch", VIDEO=str(source), LIVE="1")
    assert live.returncode == 0 and "30 frames seen, " in live.stderr


def sound() -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(8000))
    return written.getvalue()


def test_make_watch_refuses_in_one_line(video: Project, tmp_path: Path) -> None:
    for name, content, cause in (
        ("text.mp4", b"not a video", "it is not a video"),
        ("empty.mp4", b"", "it is not a video"),
        ("none.mp4", None, "no such file; check the path"),
        ("sound.wav", sound(), "there is no video in it"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        done = video.make("watch", VIDEO=str(tmp_path / name))
        (line,) = error_lines(done.stderr)
        assert done.returncode and f"{name}: {cause}" in line and not done.stdout
    done = video.make("watch", VIDEO=str(clip(tmp_path / "clip.mp4")), OUT="x.gif")
    assert error_lines(done.stderr) == [
        "error: OUT: x.gif does not say what kind of video; use one of .mp4, .mkv, .mov, .webm"
    ]


@contextmanager
def camera(port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real one, as far as the client can tell, and its port; skips without GStreamer."""
    program = str(ROOT / "tests" / "surroundings" / "camera.py")
    command, pipe = ["/usr/bin/python3", program, port], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout and process.stderr
        try:
            if not (bound := process.stdout.readline().strip()):
                pytest.skip(process.stderr.read().strip().splitlines()[-1])
            yield process, bound
        finally:
            process.kill()


def next_frame(watching: subprocess.Popen[str]) -> Any:
    assert watching.stdout
    return json.loads(watching.stdout.readline())


@pytest.mark.rare
def test_a_camera_is_watched_until_it_is_gone(video: Project, tmp_path: Path) -> None:
    """And again once it is back. What was seen until then is written."""
    out = tmp_path / "out.mp4"
    with camera() as (process, port):
        address = f"rtsp://ann:secret@127.0.0.1:{port}/test"
        watching = video.start_make("watch", VIDEO=address, JSON="1", OUT=str(out))
        frames = [next_frame(watching) for _ in range(20)]
        process.kill()
        rest = watching.communicate(timeout=LONGEST_S)[0]
    numbers = [each["frame"] for each in frames]
    assert watching.returncode and numbers == sorted({*numbers})
    summary, error, *_ = [line for line in rest.splitlines() if not line.startswith("{")]
    assert " frames seen, " in summary
    told = "it has ended; check the source, and watch it again"
    assert error == f"error: rtsp://ann:…@127.0.0.1:{port}/test: {told}"
    with av.open(str(out)) as container:
        assert len(list(container.decode(video=0))) == 20 + rest.count('{"frame"')
    done = video.make("watch", VIDEO=address)
    assert error_lines(done.stderr)[0].endswith("(connection refused); check the address")
    with camera(port):
        watching = video.start_make("watch", VIDEO=address, JSON="1")
        assert next_frame(watching)["labels"]
        assert " frames seen, " in interrupt(watching)
        done = video.make("watch", VIDEO=address.replace("test", "other"))
        (line,) = error_lines(done.stderr)
        assert done.returncode and "it does not open (server returned 404 not found)" in line


def test_an_address_that_does_not_answer_is_one_line(video: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = video.make("watch", VIDEO=f"rtsp://127.0.0.1:{silent.getsockname()[1]}/test")
    (line,) = error_lines(done.stderr)
    assert done.returncode and "it does not open (nothing came for 10 s)" in line


@pytest.mark.rare
def test_a_stream_outlives_rollouts(video: Project) -> None:
    """Of its own pipeline, which begins to smooth anew, and of the main one, which does not."""
    recipe = video.path / "kinds" / "video" / "video.yaml"
    program = video.path / "model_repository" / "postprocessing" / "1" / "model.py"
    kept = {path: path.read_text() for path in (recipe, program)}
    quick = {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "20"}
    try:
        with watched(video) as found:
            recipe.write_text(kept[recipe].replace("smoothing: 0.2 ", "smoothing: 0.5 "))
            program.write_text(kept[program] + "# the same, otherwise\n")
            video.made("publish")
            assert "; 0 of " in video.made("rollout", **quick)
            assert "; 0 of " in video.made("rollback", **quick)
            assert begun(found) == 1
            video.made("publish", MODEL="video")
            assert "; 0 of " in video.made("rollout", MODEL="video", **quick)
            assert "; 0 of " in video.made("rollback", MODEL="video", **quick)
    finally:
        for path, text in kept.items():
            path.write_text(text)
    assert begun(found) >= 3
