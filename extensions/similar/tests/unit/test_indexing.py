"""What `make index` does with a folder, asked of a stand-in for the service; with the real one in
extensions/similar/tests/end_to_end/test_similar.py."""

from contextlib import closing
from pathlib import Path

import pytest

from bundle_client import Client, Embedding
from extensions.similar import indexing
from extensions.similar.indexing import Growth
from extensions.similar.picture_index import MadeBy, PictureIndex
from scripts.base.errors import UserError
from tests.client.stand_in import StandIn

SERVED, ANOTHER = MadeBy("small", "one", 2), MadeBy("large", "two", 2)


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
