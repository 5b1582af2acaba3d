"""Texts -> a network's tokens, and its scores -> labels. Pure functions: no Triton here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bundle_serving import work
from bundle_serving.scores import softmax

# Padded to a multiple of this, so that texts of similar lengths share a batch.
MULTIPLE = 8


class TextError(ValueError):
    """The caller's bytes are not a usable text; the message says why and what would work."""


@dataclass(frozen=True)
class TextRecipe:
    backbone_model_name: str  # a folder with tokenizer.json, or a name on the hub
    task_prefix: str
    max_seq_len: int

    @classmethod
    def load(cls, path: Path) -> TextRecipe:
        return cls(**yaml.safe_load(path.read_text()))

    def tokenizer(self, beside: Path) -> Tokenizer:
        """A folder is relative to the recipe."""
        file = beside / self.backbone_model_name / "tokenizer.json"
        if file.exists():
            tokenizer = Tokenizer.from_file(str(file))
        else:
            tokenizer = Tokenizer.from_pretrained(self.backbone_model_name)
        set_lengths(tokenizer, self.max_seq_len)
        return tokenizer


def set_lengths(tokenizer: Tokenizer, longest: int) -> None:
    """Filled up by what it fills up with, if it says so."""
    tokenizer.enable_truncation(longest)
    pad = tokenizer.padding or {"pad_id": 0, "pad_token": "[PAD]"}
    tokenizer.enable_padding(
        pad_id=pad["pad_id"], pad_token=pad["pad_token"], pad_to_multiple_of=MULTIPLE
    )


def to_texts(queries: NDArray[np.object_]) -> list[str]:
    """The bytes of each text -> the texts."""
    given = queries.ravel()
    texts = [_text(raw, f"text {n} of {len(given)}") for n, raw in enumerate(given, 1)]
    if (count := sum(map(len, texts))) > work.CHARACTERS:
        raise TextError(
            f"the texts of this request have {count} characters together, more than the limit of "
            f"{work.CHARACTERS}; send fewer at once, or shorter ones; only the beginning is read"
        )
    return texts


def _text(raw: bytes, which: str) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as fault:
        raise TextError(f"{which} is not UTF-8 (byte {fault.start}); send it as UTF-8") from None
    if not text.strip():
        raise TextError(f"{which} is empty; send a few words")
    return text


def to_tokens(
    texts: Sequence[str], tokenizer: Tokenizer, task_prefix: str = ""
) -> dict[str, NDArray[np.int64]]:
    """Ids and mask [texts, tokens], padded to the longest, rounded up to a multiple of 8."""
    encoded = tokenizer.encode_batch([task_prefix + text for text in texts])
    if reason := work.too_many_tokens(len(texts), len(encoded[0].ids)):
        raise TextError(reason)
    return {
        "INPUT_IDS": np.array([each.ids for each in encoded], np.int64),
        "ATTENTION_MASK": np.array([each.attention_mask for each in encoded], np.int64),
    }


def to_labels(scores: NDArray[np.float32], labels: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Scores [texts, labels] -> each text's likeliest label and its probability."""
    probabilities = softmax(scores)
    best = probabilities.argmax(axis=1)
    return {
        "LABEL": np.array([[labels[each].encode()] for each in best], np.object_),
        "SCORE": np.take_along_axis(probabilities, best[:, None], axis=1),
    }
