"""The frames of a video, upright and in order, or the newest of them."""

import resource
import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from bundle_client import SourceError
from bundle_client.annotated import writing
from bundle_client.video import Frame, Frames, hide_password, require

TURNED = (0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30)  # clockwise, by a quarter


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return save(tmp_path / "clip.mp4")


def save(path: Path) -> Path:
    """Twelve frames, wider than high, with a white corner at the top left; each is lighter."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for number in range(12):
            pixels = np.full((64, 96, 3), 10 * number, np.uint8)
            pixels[:32, :32] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_all_frames_of_a_file_in_their_order(clip: Path) -> None:
    with Frames(str(clip)) as frames:
        found = list(frames)
    assert [each.number for each in found] == [*range(1, 13)]
    assert [round(30 * each.seconds) for each in found] == [*range(12)]
    levels = [int(each.pixels()[-1, -1, 0]) for each in found]
    assert levels == sorted(levels) and levels[-1] > 90
    assert (frames.seen, frames.dropped) == (12, 0)
    assert found[0].pixels(32).shape == (32, 48, 3) and found[0].pixels(500).shape == (64, 96, 3)


def test_times_go_on_where_a_file_has_none_or_wrong_ones(tmp_path: Path) -> None:
    """As raw streams, and .avi with frames that lean on later ones."""
    for name in ("clip.h264", "clip.avi"):
        with Frames(str(save(tmp_path / name))) as frames:
            steps = np.diff([each.seconds for each in frames])
        assert len(steps) == 11 and steps.min() > 0, name
        assert steps.mean() == pytest.approx(1 / 30, abs=0.01), name


def test_a_live_source_drops_what_nobody_asked_for_in_time(clip: Path) -> None:
    with Frames(str(clip), live=True) as frames:
        asked = iter(frames)
        first = next(asked)
        frames._changed.acquire()
        frames._changed.wait_for(lambda: frames._ended, timeout=60)
        frames._changed.release()
        rest = list(asked)
    assert [each.number for each in rest] == [12]
    assert frames.seen == 12 and frames.dropped == 11 - first.number


def test_a_turned_video_is_shown_upright(clip: Path) -> None:
    content = bytearray(clip.read_bytes())
    struct.pack_into(">9i", content, content.index(b"tkhd") + 44, *TURNED)
    clip.write_bytes(content)
    with Frames(str(clip)) as frames:
        frame = next(iter(frames))
    assert frame.size == (64, 96)
    pixels = frame.pixels()
    assert pixels.shape == (96, 64, 3)
    assert pixels[5, -5, 0] > 200 > 100 > pixels[5, 5, 0]


def test_a_folder_is_no_video(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="a folder, not a video"):
        require(str(tmp_path))


def test_the_password_of_an_address_is_not_shown() -> None:
    for source, expected in (
        ("rtsp://ann:se:cr@et@camera/hall", "rtsp://ann:…@camera/hall"),
        ("rtsp://ann@camera:554/hall", "rtsp://ann@camera:554/hall"),
        ("rtsp://camera:554/a@b", "rtsp://camera:554/a@b"),
        ("a:b@c.mp4", "a:b@c.mp4"),
    ):
        assert hide_password(source) == expected


def test_what_is_written_is_there_when_it_is_whole(clip: Path, tmp_path: Path) -> None:
    out, broken = tmp_path / "out.webm", tmp_path / "broken.mp4"
    with Frames(str(clip)) as frames, writing(out, str(clip)) as write:
        for frame in frames:
            write(frame, "a mug")
            assert not out.exists()
    with av.open(str(out)) as container:
        assert len(list(container.decode(video=0))) == 12
    with pytest.raises(RuntimeError), writing(broken, str(clip)) as write:
        write(last(clip), "a mug")
        raise RuntimeError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clip.mp4", "out.webm"]


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (320, 320, 3), np.uint8)
    frame = Frame(1, 0.0, av.VideoFrame.from_ndarray(noise, format="rgb24"))
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, unlimited[1]))
    try:
        with (
            pytest.raises(SourceError, match="too large"),
            writing(tmp_path / "out.mp4", "") as write,
        ):
            while True:
                write(frame, "a mug")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert not [*tmp_path.iterdir()]


def last(clip: Path) -> Frame:
    with Frames(str(clip)) as frames:
        return list(frames)[-1]


def test_a_video_is_not_written_over_itself(clip: Path) -> None:
    before = clip.read_bytes()
    with pytest.raises(SourceError, match="is the video itself"), writing(clip, str(clip)):
        pass
    assert clip.read_bytes() == before
