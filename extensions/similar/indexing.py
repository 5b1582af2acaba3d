"""This project's index of pictures: grown by what is new in a folder, and asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bundle_client import Client, Embedding
from bundle_client.errors import CONCERNS_ALL
from bundle_client.sources import files_in, name_of
from extensions.similar import service
from extensions.similar.picture_index import MadeBy, PictureIndex, Stamp, is_gone, stamp
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.stacks.state import State

PATH = ROOT / "build" / "index" / "pictures.zip"
LOCK = PATH.with_name("lock")
# Pictures embedded between two saves: what a killed command has to embed again.
SAVED_EVERY = 1000


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
