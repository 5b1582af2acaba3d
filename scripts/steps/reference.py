"""Asks somebody's own network about labelled pictures in ONNX Runtime, with nothing of what serves
it.

    python -m scripts.steps.reference --network birds.onnx --pictures '{"resize": 256, …}' \
        --onnx build/…/onnx --labelled val --items items.json --out build/eval

Without its file, what was exported of it is asked. Out: original.npz, the number of each picture's
likeliest class, or -1 where it cannot be read.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scripts.artefacts.exporting import start
from scripts.artefacts.manifest import Foreign, Manifest, lines_of
from scripts.artefacts.progress import step

OUT = "original.npz"
EXPORTED = "the exported network in ONNX Runtime"

Ask = Callable[[Path], int]


@dataclass(frozen=True)
class Question:
    onnx: Path  # what was exported of it
    labelled: Path  # the folder with the files
    items: Path  # their names in it, as JSON
    out: Path
    post: Path | None = None  # reads the scores of what was exported
    packages: str = ""  # the folder with those that it imports


def ask_original(question: Question, foreign: Foreign | None = None) -> None:
    """`foreign`: as scripts.steps.adopt takes it."""
    if foreign and (ask := _of_foreign(foreign)):
        return ask_each(question, foreign.network.name, ask)
    exported = of_exported(question.onnx, question.post, question.packages)
    return ask_each(question, EXPORTED, exported)


def ask_each(question: Question, what: str, ask: Ask) -> None:
    import numpy as np
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the server has a limit of its own, and took them
    names = json.loads(question.items.read_text())
    with step(f"asking the original ({what}) about {len(names)} pictures"):
        first = [_ask(ask, question.labelled / name) for name in names]
    np.savez(question.out / OUT, first=np.array(first, np.int64), what=np.array(what))


def _ask(ask: Ask, path: Path) -> int:
    try:
        return ask(path)
    except (OSError, ValueError, SyntaxError):  # Pillow's, of files that are damaged
        return -1


def _of_foreign(wanted: Foreign) -> Ask | None:
    """None of one number for two classes, which reads only with what its export found out."""
    from scripts.intake import forms
    from scripts.intake.original import Original

    how, classes = wanted.pictures, len(lines_of(wanted.labels))
    form, facts = forms.read(wanted.network, wanted.data, how, wanted.output, classes)
    if facts.classes == 1:
        return None
    original = Original(form.runnable, wanted.network.name, facts, how)
    return lambda path: int(original.of_file(path.read_bytes())[0].argmax())


def of_exported(onnx: Path, post: Path | None = None, packages: str = "") -> Ask:
    from bundle_serving.networks import network_in
    from bundle_serving.own_steps import read_by
    from scripts.intake import metadata, plain
    from scripts.intake.original import Session, rows

    # The transform of torchvision's networks does not say all.
    how = {**metadata.USUAL, **Manifest.of_export(onnx).transform}
    asked = Session(network_in(onnx), "the exported network")
    text = post.read_text() if post else ""

    def ask(path: Path) -> int:
        pixels = plain.pixels(path.read_bytes(), how).transpose(2, 0, 1)[None]
        scores = rows(asked, pixels, together=False)
        read = read_by(text, packages, scores) if text else scores
        return int(read[0].argmax())

    return ask


if __name__ == "__main__":
    start(ask_original)
