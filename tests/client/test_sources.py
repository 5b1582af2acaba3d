import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundle_client import Source, SourceError
from bundle_client.sources import expand, name_of, read

LIMIT = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.JPG", "a.png", "notes.txt", ".hidden.jpg", "c.webp"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "deeper.jpg").mkdir()
    (tmp_path / "deeper.jpg" / "d.jpg").write_bytes(b"d")
    return tmp_path


def test_a_folder_is_its_pictures_by_name(folder: Path) -> None:
    assert list(expand([folder])) == [folder / "a.png", folder / "b.JPG", folder / "c.webp"]


def test_a_lone_source_needs_no_list(folder: Path) -> None:
    assert list(expand(str(folder / "a.png"))) == [str(folder / "a.png")]
    assert list(expand(b"picture")) == [b"picture"]


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


def test_other_schemes_are_refused() -> None:
    with pytest.raises(SourceError, match="s3:// is not read"):
        read("s3://bucket/mug.jpg", LIMIT, 1)
