"""Mean average precision, as COCO has it: over overlaps from 0.5 to 0.95, and over classes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scripts.base.errors import UserError
from scripts.evaluation.figures import Interval, Measured
from scripts.evaluation.labelled import Item, require_known
from scripts.recipes.pictures import UNTRAINED

if TYPE_CHECKING:
    from bundle_client import Client

OVERLAPS = np.arange(10) * 0.05 + 0.5
RECALLS = np.linspace(0, 1, 101)
MOST = 100  # boxes of a class in a picture

Boxes = NDArray[np.float64]  # [n, 4]: left, top, right, bottom


@dataclass(frozen=True)
class Truth:
    """Of a picture, by class; what is in a crowd counts neither way."""

    boxes: dict[str, list[Sequence[float]]] = field(default_factory=dict)
    crowds: dict[str, list[Sequence[float]]] = field(default_factory=dict)


Found = dict[str, list[tuple[float, Sequence[float]]]]  # by class: scores and corners


@dataclass(frozen=True)
class Coco:
    """COCO's JSON; pictures lie beside it, or in images/ there."""

    items: Sequence[Item]
    truths: Sequence[Truth]

    @classmethod
    def read(cls, path: Path, classes: Sequence[str], model: str) -> Coco:
        try:
            content = json.loads(path.read_text())
            names = {each["id"]: str(each["name"]) for each in content["categories"]}
            truths, counts = {each["id"]: Truth() for each in content["images"]}, Counter[str]()
            for each in content["annotations"]:
                left, top, width, height = map(float, each["bbox"])
                truth, name = truths[each["image_id"]], names[each["category_id"]]
                kept = truth.crowds if each.get("iscrowd") else truth.boxes
                kept.setdefault(name, []).append((left, top, left + width, top + height))
                counts[name] += 1
            files = [str(each["file_name"]) for each in content["images"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            raise UserError(
                f"{path} is not COCO's JSON ({type(fault).__name__}: {fault})",
                "name a file with images, annotations and categories: EVAL=instances.json",
            ) from None
        if len(truths) < len(files):
            raise UserError(f"{path} has several images of one id", "give each an id of its own")
        require_known(counts, classes, classes, model)
        if not counts:
            raise UserError(f"{path} has no boxes", "name other labelled data: EVAL=")
        items = [Item(name, "", _find(path.parent, name)) for name in files]
        if missing := [item.name for item in items if not Path(item.source).is_file()]:
            raise UserError(
                f"{len(missing)} pictures of {path.name} are not there: {', '.join(missing[:5])}",
                "put them beside it, or in images/ there",
            )
        if lying := [
            each.name
            for each, of in zip(items, content["images"], strict=True)
            if is_labelled_lying(each.source, of.get("width"), of.get("height"))
        ]:
            raise UserError(
                f"{len(lying)} pictures of {path.name} were labelled without regard to their EXIF, "
                f"which turns them: {', '.join(lying[:5])}",
                "turn the boxes, too, or save the pictures upright",
            )
        return cls(items, [*truths.values()])

    def ask(self, client: Client, model: str, item: Item) -> Found:
        found: Found = {}
        for box in client.detect(item.source, model).boxes:
            corners = (box.left, box.top, box.right, box.bottom)
            found.setdefault(box.label.removesuffix(UNTRAINED), []).append((box.score, corners))
        return found

    def measure(self, answers: Sequence[Found | None], refused: Mapping[str, str]) -> Measured:
        table = self._tabulate(answers)
        count = sum(found is not None for found in answers)
        once = np.ones(count, np.int64)

        return Measured(
            {
                "mAP": Interval.of_drawn(count, partial(average, table)),
                "mAP at overlap 0.5": Interval.of_drawn(count, partial(average, table, levels=1)),
            },
            {name: float(found.average_precision(once).mean()) for name, found in table.items()},
            count,
            refused,
        )

    def compute_first(
        self, answers: Sequence[Found | None]
    ) -> Callable[[NDArray[np.int64]], float]:
        return partial(average, self._tabulate(answers))

    def _tabulate(self, answers: Sequence[Found | None]) -> dict[str, OfClass]:
        pairs = zip(self.truths, answers, strict=True)
        read = [(truth, found) for truth, found in pairs if found is not None]
        return {
            name: OfClass([match(found.get(name, ()), truth, name) for truth, found in read])
            for name in sorted({name for truth, _ in read for name in truth.boxes})
        }


def is_labelled_lying(picture: Any, width: Any, height: Any) -> bool:
    """As it lies in its file, though it is to be seen on its side."""
    from PIL import ExifTags, Image

    try:
        with Image.open(picture) as file:
            orientation = file.getexif().get(ExifTags.Base.Orientation, 1)
            return orientation > 4 and file.size == (width, height) and width != height
    except Exception:  # it will be refused by itself
        return False


def _find(folder: Path, name: str) -> Path:
    return next(
        (place for where in (folder, folder / "images") if (place := where / name).is_file()),
        folder / name,
    )


@dataclass(frozen=True)
class Matched:
    """Boxes of one class in one picture: how sure, and at each overlap whether each is right."""

    scores: NDArray[np.float64]
    right: NDArray[np.bool_]  # [overlaps, boxes]
    ignored: NDArray[np.bool_]
    truths: int


def match(found: Sequence[tuple[float, Sequence[float]]], truth: Truth, name: str) -> Matched:
    """The surest first, each takes the truth that it overlaps most, if nobody has it yet."""
    ordered = sorted(found, key=lambda each: -each[0])[:MOST]
    boxes = np.array([box for _, box in ordered], float).reshape(-1, 4)
    known = np.array(truth.boxes.get(name, ()), float).reshape(-1, 4)
    crowds = np.array(truth.crowds.get(name, ()), float).reshape(-1, 4)
    overlaps, inside = _overlap(boxes, known), _overlap(boxes, crowds, of_first=True)
    right = np.zeros((len(OVERLAPS), len(boxes)), bool)
    ignored = np.zeros_like(right)
    for level, least in enumerate(OVERLAPS):
        taken = np.zeros(len(known), bool)
        for place in range(len(boxes)):
            open_ones = np.where(taken, -1, overlaps[place])
            if len(known) and open_ones.max() >= least:
                taken[open_ones.argmax()] = right[level, place] = True
            else:
                ignored[level, place] = len(crowds) and inside[place].max() >= least
    return Matched(np.array([score for score, _ in ordered]), right, ignored, len(known))


def _overlap(first: Boxes, second: Boxes, of_first: bool = False) -> NDArray[np.float64]:
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clip(0).prod(axis=2)
    sizes = [(each[:, 2:] - each[:, :2]).clip(0).prod(axis=1) for each in (first, second)]
    whole = sizes[0][:, None] + (0 if of_first else sizes[1][None] - shared)
    overlap: NDArray[np.float64] = shared / np.maximum(whole, 1e-9)
    return overlap


class OfClass:
    """All boxes of a class, the surest first, and whose they are."""

    def __init__(self, matched: Sequence[Matched]) -> None:
        order = np.argsort(-np.concatenate([each.scores for each in matched]), kind="stable")
        counts = [len(each.scores) for each in matched]
        self._picture = np.repeat(np.arange(len(matched)), counts)[order]
        self._right = np.concatenate([each.right for each in matched], axis=1)[:, order]
        ignored = np.concatenate([each.ignored for each in matched], axis=1)[:, order]
        self._wrong = ~self._right & ~ignored
        self._truths = np.array([each.truths for each in matched])

    def average_precision(self, times: NDArray[np.int64]) -> NDArray[np.float64]:
        """At each overlap, with each picture so many times; NaN where none has the class."""
        truths, weights = int((self._truths * times).sum()), times[self._picture]
        if not truths:
            return np.full(len(OVERLAPS), np.nan)
        hits = (self._right * weights).cumsum(axis=1)
        precision = hits / np.maximum(hits + (self._wrong * weights).cumsum(axis=1), 1)
        # As it is at this recall or any higher one.
        best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        found = np.zeros(len(OVERLAPS))
        for level in range(len(OVERLAPS)):
            places = np.searchsorted(hits[level] / truths, RECALLS - 1e-9)
            found[level] = best[level][places[places < len(weights)]].sum() / len(RECALLS)
        return found


def average(
    table: Mapping[str, OfClass], times: NDArray[np.int64], levels: int = len(OVERLAPS)
) -> float:
    each = [found.average_precision(times)[:levels].mean() for found in table.values()]
    return float(np.nanmean(each))
