"""The pictures that are sent: the user's own, or generated photos of two sizes.

A generated photo costs as much to send and decode as a real one: it has detail at every scale,
edges, and sensor noise. A flat drawing would be a tenth of the size.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from bundle_client.sources import files_in
from bundle_serving.infer import Question
from bundle_serving.pictures import PictureError, Transform, to_pixels
from scripts.artefacts.workspace import Workspace
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT, expand
from scripts.base.text import printable
from scripts.recipes.recipe import Recipe

DRAWN = ROOT / "build" / "cache" / "photos"
SIZES = {"8.5 MP": (3361, 2521), "500x375": (500, 375)}
OF_EACH = 3  # so that caching a single picture does not help
QUALITY = 90

# Each octave of detail is fainter by this factor than the next coarser one.
FADING = 1.5
SENSOR_NOISE = 5
# Detail finer than this has only brightness, as in a JPEG.
FINEST_COLOUR = 100

# At most this many bytes of a folder are used: perf_analyzer reads them for every measurement.
MOST_BYTES = 32_000_000


# Enough to see whether a file is a picture.
ANY = Transform(resize=8, crop=8)


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs sent in turn: files, tensors of one shape, texts, or several tensors by name."""

    name: str
    rows: tuple[bytes, ...]
    shape: tuple[int, ...] | None = None
    texts: bool = False
    several: tuple[Question, ...] = ()

    @property
    def description(self) -> str:
        kilobytes = sum(map(len, self.rows)) / len(self.rows) / 1e3
        what = "texts" if self.texts else "requests" if self.several else "files"
        return f"{self.name}: {len(self.rows)} {what} of {kilobytes:.1f} kB"

    @classmethod
    def group_by_shape(cls, name: str, questions: Sequence[Question]) -> list[Inputs]:
        """One for each shape, without inputs that are too large to read for every measurement. The
        questions have no batch dimension."""
        tensors = [next(iter(question.values())) for question in questions]
        texts = tensors[0].dtype.kind == "S"
        if len(questions[0]) > 1 or (texts and tensors[0].shape != (1,)):
            rows = tuple(b"".join(map(bytes, question.values())) for question in questions)
            return [cls(name, rows, several=tuple(questions))]
        if texts:
            return [cls(name, tuple(bytes(each[0]) for each in tensors), (1,), texts=True)]
        if tensors[0].dtype == np.uint8 and tensors[0].ndim == 1:
            return [cls(name, tuple(each.tobytes() for each in tensors))]
        shapes: dict[tuple[int, ...], list[bytes]] = {}
        for each in tensors:
            shapes.setdefault(each.shape, []).append(each.tobytes())
        return [
            cls(f"{name} {'x'.join(map(str, shape))}", tuple(rows), shape)
            for shape, rows in shapes.items()
            if sum(map(len, rows)) <= MOST_BYTES
        ]


def choose_inputs(recipe: Recipe, made: Workspace, images: str) -> list[Inputs]:
    """The inputs for this pipeline: pictures, or its own kind of request."""

    def rows(questions: Iterable[Question]) -> list[Question]:
        return [recipe.row(question) for question in questions]

    if recipe.asked_about != "IMG":
        return _require(recipe, Inputs.group_by_shape("known questions", rows(recipe.golden(made))))
    pictures = read_or_draw(images)
    found = [
        sent
        for each in pictures
        for sent in Inputs.group_by_shape(each.name, rows(map(recipe.question, each.rows)))
    ]
    return _require(recipe, found)


def _require(recipe: Recipe, found: list[Inputs]) -> list[Inputs]:
    if not found:
        smaller = "give smaller pictures: IMAGES=; or " if recipe.asked_about == "IMG" else ""
        raise UserError(
            f"requests to {recipe.ensemble} are too large to be measured: all of one shape have "
            f"more than {MOST_BYTES // 10**6} MB together",
            f"{smaller}see where the time of one request goes: make trace",
        )
    return found


def read_or_draw(images: str) -> list[Inputs]:
    return [_from_disk(expand(images))] if images else _draw_photos()


def pixels_of(pictures: Inputs, transform: Transform) -> Inputs:
    """The same pictures, as pixels for the bare network."""
    arrays = [to_pixels(row, transform) for row in pictures.rows]
    return Inputs("pixels", tuple(array.tobytes() for array in arrays), arrays[0].shape)


def _from_disk(path: Path) -> Inputs:
    found = [path] if path.is_file() else [Path(str(each)) for each in files_in(path)]
    rows: list[bytes] = []
    for file in found:
        data = file.read_bytes()
        if rows and sum(map(len, rows)) + len(data) > MOST_BYTES:
            console.note(f"using the first {len(rows)} of {len(found)} pictures in {path}")
            break
        try:
            to_pixels(data, ANY)
        except PictureError as fault:
            console.note(f"skipped {file.name}: {fault}")
        else:
            rows.append(data)
    if not rows:
        raise UserError(f"no pictures at {path}", "give a folder of pictures: IMAGES=photos")
    return Inputs(printable(path.resolve().name), tuple(rows))


def _draw_photos() -> list[Inputs]:
    """Generated once and cached."""
    recipe = json.dumps([SIZES, OF_EACH, QUALITY, FADING, SENSOR_NOISE, FINEST_COLOUR])
    made_by = DRAWN / "recipe.json"
    if not made_by.exists() or made_by.read_text() != recipe:
        with console.waiting("generating photos"), files.whole_folder(DRAWN) as draft:
            for name, size in SIZES.items():
                for seed in range(OF_EACH):
                    (draft / f"{name} {seed}.jpg").write_bytes(draw(size, seed))
            (draft / made_by.name).write_text(recipe)
    return [
        Inputs(name, tuple((DRAWN / f"{name} {seed}.jpg").read_bytes() for seed in range(OF_EACH)))
        for name in SIZES
    ]


def draw(size: tuple[int, int], seed: int) -> bytes:
    """A JPEG of a random scene."""
    random = np.random.default_rng(seed)
    scene = Image.fromarray(_landscape(size, random))
    for _ in range(14):
        _place_object(scene, random)
    noise = SENSOR_NOISE * random.standard_normal((size[1], size[0], 1), np.float32)
    photo = (np.asarray(scene) + noise).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(photo).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def _landscape(size: tuple[int, int], random: np.random.Generator) -> NDArray[np.uint8]:
    """Random shades from coarse to fine, like clouds and foliage."""
    width, height = size
    total = np.zeros((height, width, 3), np.float32)
    cells, amplitude = 3, 1.0
    while cells < max(size) / 2:
        coarse = (max(2, cells * height // max(size)), max(2, cells * width // max(size)))
        total += amplitude * _enlarge(random.standard_normal(coarse, np.float32), size)[..., None]
        if cells < FINEST_COLOUR:
            for channel in range(3):
                tint = _enlarge(random.standard_normal(coarse, np.float32), size)
                total[..., channel] += 0.35 * amplitude * tint
        cells, amplitude = cells * 2, amplitude / FADING
    shades: NDArray[np.uint8] = (128 + 52 * total / total.std()).clip(0, 255).astype(np.uint8)
    return shades


def _enlarge(grid: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    return np.asarray(Image.fromarray(grid).resize(size, Image.Resampling.BICUBIC))


def _place_object(scene: Image.Image, random: np.random.Generator) -> None:
    x, y = random.uniform(0, scene.width), random.uniform(0, scene.height)
    wide = random.uniform(0.04, 0.18) * scene.width
    high = wide * random.uniform(0.5, 1.5)
    shape = Image.new("L", scene.size, 0)
    ImageDraw.Draw(shape).ellipse((x - wide, y - high, x + wide, y + high), fill=150)
    red, green, blue = (int(value) for value in random.integers(20, 235, 3))
    scene.paste((red, green, blue), (0, 0), shape)
