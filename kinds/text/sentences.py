"""The labelled sentences written for this project, which minilm is taught with. Stdlib only."""

import csv
from dataclasses import dataclass
from pathlib import Path

# Needs no hub: an encoder from PyPI, and a last layer that is trained during the export.
MINILM = "minilm"

PATH = Path(__file__).parent / "sentences.tsv"

FOLDS = 4
# Single words and phrases are for training only: as tests they would be too easy.
TEACHES_ONLY = "words"


@dataclass(frozen=True)
class Sentence:
    label: str
    domain: str
    text: str


def read() -> list[Sentence]:
    with PATH.open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Sentence(**row) for row in rows]


def folds(sentences: list[Sentence]) -> list[int | None]:
    """The fold of each sentence; a sentence and its opposite are neighbours and share a fold, or
    one would leak the other."""
    return [
        None if sentence.domain == TEACHES_ONLY else number // 2 % FOLDS
        for number, sentence in enumerate(sentences)
    ]
