"""The vectors of many pictures in one file, and which of them are most alike.

Vectors come from the caller. The file is a zip archive of the list of pictures and of the graph
that is searched: its checksums tell a damaged one, which the graph's own reader would believe.
"""

import errno
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from usearch.index import Index

from scripts.base import files
from scripts.base.errors import UserError

PICTURES, GRAPH = "pictures.json", "graph.usearch"
# What is searched at first; more if those are not wanted.
AT_FIRST = 32
# What is raised where an archive or what is in it is not whole.
DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError),
    *(KeyError, TypeError, ValueError, RuntimeError),
)


@dataclass(frozen=True)
class MadeBy:
    """What made the vectors: those of another one cannot be compared."""

    network: str
    digest: str  # of all that decides what a vector is
    dimensions: int


class Stamp(NamedTuple):
    """A file that has another one was changed."""

    size: int
    modified_ns: int


def stamp(path: str) -> Stamp | None:
    """None if it cannot be looked at."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns)


def is_gone(path: str) -> bool:
    """And not merely in a folder that this user may not read."""
    with suppress(OSError):
        return not Path(path).exists()
    return False


class PictureIndex:
    def __init__(self, made_by: MadeBy) -> None:
        self.made_by = made_by
        # Half of the memory of float32, and a tenth of the time to build it.
        self._graph = Index(ndim=made_by.dimensions, metric="ip", dtype="bf16")
        self._paths: dict[int, str] = {}
        self._stamps: dict[str, Stamp] = {}
        self._keys: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def paths(self) -> list[str]:
        return list(self._keys)

    def stamp(self, path: str) -> Stamp | None:
        """The picture's when its vector was made."""
        return self._stamps.get(path)

    def put(self, pictures: Mapping[str, Stamp], vectors: NDArray[np.float32]) -> None:
        """Adds these pictures, or their new vectors."""
        self.remove(pictures)
        first = max(self._paths, default=-1) + 1
        keys = range(first, first + len(pictures))
        if keys:
            # By one thread: of what several add at once, some is never found again. To make the
            # vectors takes far longer.
            self._graph.add(np.array(keys, np.uint64), vectors, threads=1)
        for key, (path, its) in zip(keys, pictures.items(), strict=True):
            self._know(key, path, its)

    def remove(self, paths: Iterable[str]) -> None:
        """Those that are in it."""
        for path in paths:
            if (key := self._keys.pop(path, None)) is None:
                continue
            del self._paths[key], self._stamps[path]
            self._graph.remove(key)

    def alike(self, vector: NDArray[np.float32]) -> Iterator[tuple[float, str]]:
        """All pictures with their cosine similarity, the most alike first; searched as they are
        taken."""
        count, seen = AT_FIRST, set[int]()
        while len(seen) < len(self):
            found = self._graph.search(vector, min(count, len(self)))
            for key, distance in zip(map(int, found.keys), found.distances, strict=True):
                if key not in seen:
                    seen.add(key)
                    yield min(1.0, 1 - float(distance)), self._paths[key]
            if count >= len(self):
                return
            count *= 4

    def save(self, path: Path) -> None:
        listed = [[key, path, *self._stamps[path]] for key, path in self._paths.items()]
        graph = self._graph.save()
        assert graph  # nothing is returned of a graph that is saved to a path
        head = {"made_by": asdict(self.made_by), "pictures": listed}
        with files.whole_file(path) as draft, zipfile.ZipFile(draft, "w") as archive:
            archive.writestr(PICTURES, json.dumps(head))
            with archive.open(GRAPH, "w", force_zip64=True) as file:
                file.write(graph)

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            with path.open("rb") as file, zipfile.ZipFile(file) as archive:
                return cls._parse(json.loads(archive.read(PICTURES)), archive.read(GRAPH))
        except (*DAMAGED, OSError) as why:
            # A damaged archive may send its reader to before its beginning.
            if isinstance(why, OSError) and why.errno != errno.EINVAL:
                raise
            raise UserError(
                f"{path} cannot be read: {(str(why) or repr(why)).splitlines()[0]}",
                "remove it, and build it anew: make index IN=photos",
            ) from None

    @classmethod
    def _parse(cls, head: dict[str, Any], graph: bytes) -> Self:
        index = cls(MadeBy(**head["made_by"]))
        index._graph.load(graph)
        for key, path, *its in head["pictures"]:
            index._know(key, path, Stamp(*its))
        if len(index._graph) != len(index):
            raise ValueError("its two parts do not fit")
        return index

    def _know(self, key: int, path: str, its: Stamp) -> None:
        self._paths[key], self._keys[path], self._stamps[path] = path, key, its
