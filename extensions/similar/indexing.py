"""The vectors of many pictures in one file, which of them are most alike, and this project's index:
grown by what is new in a folder, and asked.

Vectors come from the service. The file is a zip archive of the list of pictures and of the graph
that is searched: its checksums tell a damaged one, which the graph's own reader would believe.
"""

from __future__ import annotations

import errno
import hashlib
import json
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from usearch.index import Index

from bundle_client import Client, Embedding
from bundle_client.errors import CONCERNS_ALL
from bundle_client.sources import files_in, name_of
from extensions.similar import service
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.stacks.state import State

PATH = ROOT / "build" / "index" / "pictures.zip"
LOCK = PATH.with_name("lock")
# Pictures embedded between two saves: what a killed command has to embed again.
SAVED_EVERY = 1000
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


def describe_maker(known: State) -> MadeBy:
    """What the vectors of this service come from: its network's graph, and how pictures are
    prepared for it."""
    made = json.loads((service.MADE / "manifest.json").read_text())
    decides = [made["onnx"]["sha256"], made["transform"], known.settings_at_start.decode]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return MadeBy(service.network(), digest, made["onnx"]["dimensions"])


def load_index() -> PictureIndex:
    try:
        return PictureIndex.load(PATH)
    except FileNotFoundError:
        raise UserError(
            "no pictures are indexed",
            "index a folder (make index IN=photos), or compare with one (IN=photos)",
        ) from None


def require_fitting(index: PictureIndex, known: State) -> None:
    served = describe_maker(known)
    if index.made_by != served:
        raise UserError(
            f"the index has vectors of another network ({index.made_by.network}) "
            f"than the one that is served ({served.network})",
            "build it anew (make index IN=photos), or serve that one again (EMBEDDINGS=)",
        )


def best(index: PictureIndex, wanted: Embedding, count: int) -> list[tuple[float, str]]:
    """Only of files that are as they were indexed, and not the picture itself."""
    found: list[tuple[float, str]] = []
    for likeness, path in index.alike(wanted.vector):
        if len(found) == count:
            break
        if stamp(path) == index.stamp(path) and not files.is_same(path, wanted.source):
            found.append((likeness, path))
    return found


@dataclass
class Growth:
    """What is to be done so that the index has a folder as it is now."""

    index: PictureIndex
    replaces: MadeBy | None  # the network of all vectors so far, which is another one now
    changed: dict[str, Stamp]  # or new
    unchanged: int
    gone: list[str]

    @classmethod
    def start(cls, folder: Path, served: MadeBy) -> Growth:
        before = PictureIndex.load(PATH) if PATH.exists() else PictureIndex(served)
        anew = before.made_by != served
        index = PictureIndex(served) if anew else before
        known = [path for path in before.paths() if anew or Path(path).parent == folder]
        here = [name_of(each) for each in files_in(folder)]
        now = {path: stamp(path) for path in dict.fromkeys([*known, *here])}
        changed = {path: its for path, its in now.items() if its and its != index.stamp(path)}
        unchanged = sum(its is not None for its in now.values()) - len(changed)
        gone = [path for path in known if is_gone(path)]
        return cls(index, before.made_by if anew else None, changed, unchanged, gone)

    def embed_all(self, client: Client) -> Generator[Embedding, None, None]:
        """Every answer. Saves from time to time, but vectors of another network only when all are
        replaced."""
        pending: list[Embedding] = []
        for each in client.embed_many(list(self.changed)):
            if isinstance(each.error, CONCERNS_ALL):
                raise UserError(each.error.cause, each.error.remedy)
            pending.append(each)
            yield each
            if len(pending) == SAVED_EVERY:
                self._take(pending)
                pending = []
                if not self.replaces:
                    self.index.save(PATH)
        self._take(pending)

    def _take(self, answers: list[Embedding]) -> None:
        """A picture that was indexed and is broken now is taken out."""
        good = [each for each in answers if not each.error]
        self.index.remove(each.source for each in answers if each.error)
        if good:
            stamps = {each.source: self.changed[each.source] for each in good}
            self.index.put(stamps, np.stack([each.vector for each in good]))
