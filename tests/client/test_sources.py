import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import ExifTags, Image

from bundle_client import Source, SourceError
from bundle_client.sources import expand, is_array, is_image, name_of, read
from bundle_serving.pictures import Transform, to_pixels

LIMIT = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.JPG", "a.png", "notes.txt", ".hidden.jpg", "c.webp"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "deeper.jpg").mkdir()
    (tmp_path / "deeper.jpg" / "d.jpg").write_bytes(b"d")
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    return tmp_path


def test_a_folder_is_its_pictures_by_name(folder: Path) -> None:
    assert list(expand([folder])) == [folder / "a.png", folder / "b.JPG", folder / "c.webp"]


def test_a_lone_source_needs_no_list(folder: Path) -> None:
    assert list(expand(str(folder / "a.png"))) == [str(folder / "a.png")]
    assert list(expand(b"picture")) == [b"picture"]
    with (folder / "a.png").open("rb") as file:  # which has lines
        assert list(expand(file)) == [file]


def test_sources_keep_their_order_and_are_taken_one_by_one(folder: Path) -> None:
    def sources() -> Iterator[Source]:
        yield b"first"
        yield folder
        raise AssertionError("taken too early")

    expanded = expand(sources())
    assert [next(expanded) for _ in range(4)] == [b"first", *expand(folder)]


def test_every_kind_of_source_is_read(folder: Path) -> None:
    assert read(folder / "a.png", LIMIT, 1) == b"a.png"
    assert read(str(folder / "a.png"), LIMIT, 1) == b"a.png"
    assert read(b"bytes", LIMIT, 1) == b"bytes"
    assert read(io.BytesIO(b"open"), LIMIT, 1) == b"open"


def test_names() -> None:
    assert name_of(Path("x/mug.jpg")) == "x/mug.jpg"
    assert name_of("https://example.org/mug.jpg") == "https://example.org/mug.jpg"
    assert name_of(b"12345") == "<5 bytes>"
    assert name_of(io.BytesIO(b"")) == "<open file>"


def test_the_size_limit_counts_for_every_kind(tmp_path: Path) -> None:
    big = tmp_path / "big.jpg"
    big.write_bytes(bytes(LIMIT + 1))
    for source in (big, big.read_bytes(), io.BytesIO(big.read_bytes()), Path("/dev/zero")):
        with pytest.raises(SourceError, match=r"larger than 0\.001 MB"):
            read(source, LIMIT, 1)
    big.write_bytes(bytes(LIMIT))
    assert len(read(big, LIMIT, 1)) == LIMIT


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("none.jpg", "no such file"),
        ("empty.jpg", "it is empty"),
        ("bare", "no pictures in this folder"),
        ("full", "a folder, not a picture"),
        ("empty.jpg/mug.jpg", "not a directory"),
        ("nul\0.jpg", "null"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, name: str, cause: str) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "bare").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mug.jpg").touch()
    with pytest.raises(SourceError, match=cause) as raised:
        read(os.fspath(tmp_path) + "/" + name, LIMIT, 1)
    assert raised.value.remedy


def test_a_folder_that_may_not_be_read_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "scandir", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(SourceError, match="permission denied"):
        read(next(expand(folder)), LIMIT, 1)


def test_open_files_that_give_no_picture(folder: Path) -> None:
    closed = io.BytesIO(b"picture")
    closed.close()
    with (folder / "a.png").open() as text:
        for file in (closed, text, io.TextIOWrapper(io.BytesIO(b"\xff\xd8"), "utf-8")):
            with pytest.raises(SourceError, match='open the file with "rb"'):
                read(file, LIMIT, 1)  # type: ignore[arg-type]


def test_other_schemes_are_refused() -> None:
    with pytest.raises(SourceError, match="s3:// is not supported"):
        read("s3://bucket/mug.jpg", LIMIT, 1)


PIXELS = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
WHOLE = Transform(resize=30, crop=30, decode="full")


def seen(source: Source) -> NDArray[np.uint8]:
    """What the server makes of it."""
    return to_pixels(read(source, 1_000_000, 1), WHOLE)


def test_pixels_reach_the_server_as_they_are() -> None:
    image = Image.fromarray(PIXELS)
    centre = PIXELS[:, 5:35].transpose(2, 0, 1)
    for source in (image, PIXELS, PIXELS[::-1][::-1], image.convert("RGBA")):
        assert np.array_equal(seen(source), centre)
    assert np.array_equal(seen(PIXELS[..., 0]), centre[[0, 0, 0]])
    assert np.array_equal(seen(np.dstack([PIXELS, PIXELS[..., :1] * 0])), np.full_like(centre, 255))


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "RGBX", "RGBa", "CMYK", "YCbCr", "I", "I;16", "F"]
)
def test_images_of_every_mode_are_sent(mode: str) -> None:
    assert seen(Image.new(mode, (40, 30))).shape == (3, 30, 30)


@pytest.mark.parametrize(
    ("mode", "usual", "colour"),
    [
        ("I;16B", Image.new("I", (40, 30), 20_000), 78),
        ("La", Image.new("LA", (40, 30), (90, 0)), 255),
        ("PA", Image.new("RGBA", (40, 30), (90, 20, 10, 0)), 255),
        ("RGBa", Image.new("RGBA", (40, 30), (90, 20, 10, 0)), 255),
    ],
)
def test_odd_modes_are_seen_as_usual_ones(mode: str, usual: Image.Image, colour: int) -> None:
    assert (seen(usual.convert(mode)) == colour).all()


def test_an_opened_photo_is_seen_as_its_file_is(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(PIXELS).save(path := tmp_path / "turned.tif", exif=exif)
    with Image.open(path) as photo:
        assert name_of(photo) == str(path)
        assert np.array_equal(seen(photo), seen(path))


@pytest.mark.parametrize(("mode", "most"), [("F", 1.0), ("F", 255.0), ("I", 65535)])
def test_wide_pixels_are_seen_as_those_of_their_file(
    tmp_path: Path, mode: str, most: float
) -> None:
    grey = PIXELS[..., 0] / 255 * most
    image = Image.fromarray(grey.astype(np.float32 if mode == "F" else np.int32))
    image.save(path := tmp_path / "wide.tif")
    assert image.mode == mode and np.array_equal(seen(image), seen(path))


@pytest.mark.parametrize(("module", "ask"), [("numpy", is_array), ("PIL.Image", is_image)])
def test_what_another_thread_is_importing_is_no_picture_yet(
    monkeypatch: pytest.MonkeyPatch, module: str, ask: Callable[[object], bool]
) -> None:
    monkeypatch.setitem(sys.modules, module, ModuleType(module))
    assert not ask(PIXELS)


def test_an_image_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(path := tmp_path / "cut.png")
    path.write_bytes(path.read_bytes()[:1000])
    with Image.open(path) as photo, pytest.raises(SourceError, match="cannot be read"):
        read(photo, LIMIT, 1)


@pytest.mark.parametrize(
    "array", [PIXELS / 255, PIXELS[0, 0], PIXELS.transpose(2, 0, 1), np.uint8(3), PIXELS[:0]]
)
def test_an_array_that_is_no_picture_is_refused_with_a_remedy(array: NDArray[np.uint8]) -> None:
    with pytest.raises(SourceError, match=r"uint8 \[height, width, 3\]"):
        read(np.asarray(array), LIMIT, 1)


@pytest.mark.parametrize("source", [None, 3, [b"mug"]])
def test_what_is_no_source_is_refused_with_a_remedy(source: Source) -> None:
    with pytest.raises(TypeError, match=r"cannot be used as a picture; give .* a PIL image"):
        read(source, LIMIT, 1)


def test_pixels_alone_need_no_list() -> None:
    image = Image.fromarray(PIXELS)
    assert [list(expand(image)), list(expand(PIXELS))] == [[image], [PIXELS]]
    assert len(list(expand(np.stack([PIXELS] * 5)))) == 5
    assert [name_of(image), name_of(PIXELS)] == ["<image 40x30>", "<array 30x40x3>"]
