"""The index of pictures: what it holds, what becomes of its file, and what `make index` does with a
folder, asked of a stand-in for the service; with the real one in
extensions/similar/tests/end_to_end/test_similar.py."""

import resource
import signal
import subprocess
import sys
import zipfile
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bundle_client import Client, Embedding
from extensions.similar import indexing
from extensions.similar.indexing import (
    GRAPH,
    PICTURES,
    Growth,
    MadeBy,
    PictureIndex,
    Stamp,
    is_gone,
    stamp,
)
from scripts.base.errors import UserError
from tests.client.stand_in import StandIn
from tests.project import ROOT

DIMENSIONS = 64
MADE_BY = MadeBy("a network", "its digest", DIMENSIONS)
NOW, LATER = Stamp(1, 1), Stamp(1, 2)
SERVED, ANOTHER = MadeBy("small", "one", 2), MadeBy("large", "two", 2)


def vectors(count: int, seed: int = 0) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    made: NDArray[np.float32] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return made


def filled(count: int) -> PictureIndex:
    index = PictureIndex(MADE_BY)
    index.put({f"/{n}.jpg": NOW for n in range(count)}, vectors(count))
    return index


def test_each_picture_is_most_like_itself_and_all_come_in_order() -> None:
    index = filled(300)
    for n, vector in enumerate(vectors(300)):
        likeness, path = next(index.alike(vector))
        assert path == f"/{n}.jpg" and likeness == pytest.approx(1, abs=0.01)
    found = list(index.alike(vectors(1)[0]))
    assert len(found) > 290 and len({path for _, path in found}) == len(found)
    exact = vectors(300) @ vectors(1)[0]
    for likeness, path in found:
        assert likeness == pytest.approx(exact[int(path[1:-4])], abs=0.01)
    assert list(PictureIndex(MADE_BY).alike(vectors(1)[0])) == []


def test_it_grows_and_changes_and_forgets() -> None:
    index = filled(100)
    new = vectors(20, seed=1)
    index.put({f"/{n}.jpg": LATER for n in range(90, 110)}, new)
    assert len(index) == 110
    assert (index.stamp("/89.jpg"), index.stamp("/90.jpg")) == (NOW, LATER)
    assert next(index.alike(new[0]))[1] == "/90.jpg"
    assert next(index.alike(vectors(100)[90]))[0] < 0.9  # as it was before

    index.remove(["/90.jpg", "/5.jpg"])
    assert len(index) == 108 and index.stamp("/5.jpg") is None
    assert not {"/90.jpg", "/5.jpg"} & {path for _, path in index.alike(new[0])}
    index.put({"/5.jpg": LATER}, new[:1])
    assert next(index.alike(new[0]))[1] == "/5.jpg"


def test_it_is_the_same_after_saving_and_can_go_on(tmp_path: Path) -> None:
    index, path = filled(100), tmp_path / "of its own" / "pictures.zip"
    index.put({"/caf\udce9.jpg": LATER}, vectors(1, seed=1))  # a name that is not UTF-8
    index.save(path)
    loaded = PictureIndex.load(path)
    assert loaded.made_by == MADE_BY and loaded.paths() == index.paths()
    assert loaded.stamp("/caf\udce9.jpg") == LATER
    assert list(loaded.alike(vectors(1)[0])) == list(index.alike(vectors(1)[0]))
    loaded.remove(["/7.jpg"])
    loaded.put({"/new.jpg": NOW}, vectors(1, seed=2))
    loaded.save(path)
    assert next(PictureIndex.load(path).alike(vectors(1, seed=2)[0]))[1] == "/new.jpg"


def test_a_disk_that_is_full_leaves_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "pictures.zip"
    filled(10).save(path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) * 2, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            filled(1000).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_killed_at_any_moment_it_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "pictures.zip"
    code = f"""
from pathlib import Path
from extensions.similar.tests.unit.test_indexing import filled
indexes = [filled(10), filled(200)]
while True:
    for index in indexes:
        index.save(Path({str(path)!r}))
        print("saved", flush=True)
"""
    for rounds in range(1, 4):
        with subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE
        ) as saving:
            assert saving.stdout
            for _ in range(rounds):
                saving.stdout.readline()
            saving.send_signal(signal.SIGKILL)
        assert len(PictureIndex.load(path)) in (10, 200)
    filled(20).save(path)
    assert list(tmp_path.iterdir()) == [path]  # the drafts of the killed are gone too


def test_whatever_byte_is_damaged_it_is_one_line(tmp_path: Path) -> None:
    """In its list of files at the end, from which its reader goes everywhere."""
    path = tmp_path / "pictures.zip"
    filled(3).save(path)
    whole = path.read_bytes()
    for place in range(whole.index(b"PK\x01\x02"), len(whole)):
        for flipped in (0x01, 0x08, 0x80):
            damaged = bytearray(whole)
            damaged[place] ^= flipped
            path.write_bytes(damaged)
            with suppress(UserError):
                PictureIndex.load(path)


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "flipped", "another list", "no graph"])
def test_a_damaged_file_is_one_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "pictures.zip"
    filled(100).save(path)
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "cut":
        path.write_bytes(content[:middle])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("Dear Sir or Madam")
    elif damage == "flipped":
        flipped = bytes([content[middle] ^ 1])
        path.write_bytes(content[:middle] + flipped + content[middle + 1 :])
    else:
        filled(99).save(tmp_path / "other.zip")
        with zipfile.ZipFile(tmp_path / "other.zip") as other, zipfile.ZipFile(path, "w") as new:
            new.writestr(PICTURES, other.read(PICTURES))
            if damage == "another list":
                filled(100).save(tmp_path / "whole.zip")
                with zipfile.ZipFile(tmp_path / "whole.zip") as whole:
                    new.writestr(GRAPH, whole.read(GRAPH))
    with pytest.raises(UserError, match=r"pictures\.zip cannot be read: \S") as refused:
        PictureIndex.load(path)
    assert "\n" not in refused.value.cause and "make index" in refused.value.remedy


def test_a_file_that_was_changed_is_told_from_one_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "mug.jpg"
    path.write_bytes(b"mug")
    before = stamp(str(path))
    path.write_bytes(b"jug!")
    assert stamp(str(path)) not in (before, None) and not is_gone(str(path))
    path.unlink()
    assert stamp(str(path)) is None and is_gone(str(path)) and is_gone(f"{path}/in")


def test_no_picture_is_more_like_another_than_the_same() -> None:
    index, drawn = filled(200), vectors(200)
    assert max(next(index.alike(each))[0] for each in drawn) <= 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in refuses what says that it is bad."""
    monkeypatch.setattr(indexing, "PATH", tmp_path / "index" / "pictures.zip")
    made = tmp_path / "photos"
    made.mkdir()
    for name in ("a", "b", "c"):
        (made / f"{name}.jpg").write_bytes(name.encode())
    return made


def grown(stand_in: StandIn, folder: Path, made_by: MadeBy = SERVED) -> tuple[Growth, int]:
    """And how many were refused."""
    growth = Growth.start(folder, made_by)
    with Client(stand_in.url) as client:
        refused = sum(each.error is not None for each in growth.embed_all(client))
    growth.index.save(indexing.PATH)
    return growth, refused


def names(index: PictureIndex) -> list[str]:
    return sorted(Path(path).name for path in index.paths())


def test_only_what_is_new_or_changed_is_embedded(stand_in: StandIn, folder: Path) -> None:
    assert grown(stand_in, folder)[0].unchanged == 0
    (folder / "b.jpg").write_bytes(b"bb")
    (folder / "d.jpg").write_bytes(b"bad")
    (folder / "c.jpg").unlink()
    growth, refused = grown(stand_in, folder)
    assert [Path(path).name for path in growth.changed] == ["b.jpg", "d.jpg"] and refused == 1
    assert growth.unchanged == 1 and growth.gone == [str(folder / "c.jpg")]
    assert names(indexing.load_index()) == ["a.jpg", "b.jpg", "c.jpg"]

    (folder / "b.jpg").write_bytes(b"bad")
    grown(stand_in, folder)
    assert names(indexing.load_index()) == ["a.jpg", "c.jpg"]


def test_what_is_not_as_it_was_indexed_is_in_no_answer(stand_in: StandIn, folder: Path) -> None:
    index = grown(stand_in, folder)[0].index
    with Client(stand_in.url) as client:
        wanted = client.embed(folder / "a.jpg")
    assert best(index, wanted) == ["b.jpg", "c.jpg"]  # and not itself
    (folder / "b.jpg").rename(folder / "another.jpg")
    assert best(index, wanted) == ["c.jpg"]
    (folder / "c.jpg").write_bytes(b"changed")
    assert best(index, wanted) == []


def best(index: PictureIndex, wanted: Embedding) -> list[str]:
    return sorted(Path(path).name for _, path in indexing.best(index, wanted, 5))


def test_another_network_embeds_all_folders_again(
    stand_in: StandIn, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.jpg").write_bytes(b"x")
    (other / "gone.jpg").write_bytes(b"gone from here")
    grown(stand_in, folder)
    grown(stand_in, other)
    (other / "gone.jpg").unlink()
    growth, _ = grown(stand_in, folder, ANOTHER)
    assert growth.replaces == SERVED and growth.gone == [str(other / "gone.jpg")]
    again = indexing.load_index()
    assert again.made_by == ANOTHER and names(again) == ["a.jpg", "b.jpg", "c.jpg", "x.jpg"]


def test_what_was_saved_before_an_interruption_is_not_embedded_again(
    stand_in: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "SAVED_EVERY", 1)
    interrupted(stand_in, Growth.start(folder, SERVED))
    assert len(indexing.load_index()) == 1
    growth, _ = grown(stand_in, folder)
    assert (len(growth.changed), growth.unchanged, len(growth.index)) == (2, 1, 3)

    before = indexing.PATH.read_bytes()
    interrupted(stand_in, Growth.start(folder, ANOTHER))  # saved only when all are there
    assert indexing.PATH.read_bytes() == before


def interrupted(stand_in: StandIn, growth: Growth) -> None:
    """At the second picture, as by Ctrl-C."""
    with Client(stand_in.url) as client, closing(growth.embed_all(client)) as answers:
        next(answers), next(answers)


def test_a_service_that_is_gone_ends_it_at_once(folder: Path, closed_port: int) -> None:
    with Client(f"127.0.0.1:{closed_port}") as client, pytest.raises(UserError) as refused:
        list(Growth.start(folder, SERVED).embed_all(client))
    assert "make similar" in refused.value.remedy and not indexing.PATH.exists()


def test_without_an_index_a_way_on_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match="no pictures are indexed"):
        indexing.load_index()
