"""Vectors, asked of a stand-in for the service."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bundle_client import (
    AsyncClient,
    Client,
    Embedding,
    PictureRefused,
    ServerBusy,
    ServerUnreachable,
    Source,
    SourceError,
)
from bundle_client.answers import of_the_service
from tests.client.stand_in import StandIn

Many = Callable[[str, list[Source]], list[Embedding]]


def many_sync(url: str, sources: list[Source]) -> list[Embedding]:
    with Client(url, max_bytes=100) as client:
        return list(client.embed_many(sources, concurrency=2))


def many_async(url: str, sources: list[Source]) -> list[Embedding]:
    async def ask() -> list[Embedding]:
        async with AsyncClient(url, max_bytes=100) as client:
            return [found async for found in client.embed_many(sources, concurrency=2)]

    return asyncio.run(ask())


both = pytest.mark.parametrize("many", [many_sync, many_async])


@both
def test_each_picture_has_its_vector_or_its_own_error(
    stand_in: StandIn, many: Many, tmp_path: Path
) -> None:
    (tmp_path / "empty.jpg").touch()
    large = bytes(101)
    sources: list[Source] = [b"mug", b"bad", tmp_path / "empty.jpg", large, tmp_path / "none", b"x"]
    found = many(stand_in.url, sources)
    kinds = [type(each.error) for each in found]
    nothing = type(None)
    assert kinds == [nothing, PictureRefused, SourceError, SourceError, SourceError, nothing]
    assert found[0].vector.tolist() == pytest.approx([0.6, 0.8])
    assert found[0].network == "small" and found[0].ms > 0
    assert str(found[1].error) == "<3 bytes>: not a picture; send one"
    assert found[1].vector.size == 0


@both
def test_a_missing_service_has_its_own_remedy(closed_port: int, many: Many) -> None:
    (found,) = many(f"127.0.0.1:{closed_port}", [b"mug"])
    assert isinstance(found.error, ServerUnreachable)
    assert "make similar" in found.error.remedy


def test_a_busy_service_is_none_that_has_exited() -> None:
    with pytest.raises(ServerBusy, match="9 requests are in flight; wait"), of_the_service():
        raise ServerBusy("9 requests are in flight", "wait")
