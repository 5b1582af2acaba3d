"""Detectors of Hugging Face's transformers, as make add-model takes them: FROM=folder."""

from collections.abc import Mapping
from pathlib import Path

from kinds.detection.recipe import Boxes, Detection
from scripts.base import files
from scripts.base.errors import UserError
from scripts.intake import metadata
from scripts.recipes.parts import Batch, Instances
from scripts.repository import custom

TAKEN = ""  # a folder of Hugging Face's, as others
# As transformers does it by default.
THRESHOLD = 0.5
# Of pictures at once: a detector that attends to all of them takes much memory.
TOGETHER = Batch(max=8, optimal=4, preferred=(4, 8))
SIDE = "say the side of the square that the network sees: SIZE=640"


def takes(path: Path) -> bool:
    return metadata.of_a_detector(files.read_json(path / "config.json"))


def make_recipe(name: str, folder: Path, given: Mapping[str, str]) -> Detection:
    """What its network is like, the export finds out."""
    for word in ("LABELS", "OUTPUT", "PICTURES", "SAMPLE", "WEIGHTS"):
        if given.get(word):
            raise UserError(f"{word}= is not for a detector, whose folder says it all", "omit it")
    height, width = custom.size(given.get("SIZE", "")) or (_find_side(folder),) * 2
    if height != width:
        raise UserError("a detector's pictures are squashed into a square", SIDE)
    most = 1  # until it is exported
    return Detection(
        kind="detection",
        models=custom.models(name),
        source=custom.beside_recipes(folder),
        side=height,
        boxes=Boxes(threshold=THRESHOLD, overlap=1, candidates=most, most=most),
        batch=TOGETHER,
        instances=Instances(network_on_gpu=2),
    )


def _find_side(folder: Path) -> int:
    """Of the square that pictures are squashed into: of one that the folder names, or the short
    side."""
    path = folder / "preprocessor_config.json"
    size = files.read_json(path).get("size")
    if isinstance(size, dict):
        sides = {size.get("height"), size.get("width"), size.get("shortest_edge")} - {None}
        if len(sides) == 1 and isinstance(side := sides.pop(), int) and side > 0:
            return side
    raise UserError(f"{path} does not name a size with one side", SIDE)
