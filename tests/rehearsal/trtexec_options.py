"""The rehearsal's reading of trtexec's command line, as strict as sampleOptions.cpp.

A word that the table of the played TensorRT version does not have, or that stands there twice, is
an unknown option; a value that its option does not take ends the run too.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from rtx import Profile, Shape

TABLES = {10: "options_10_16.txt", 11: "options_11_1.txt"}

INTEGER = r"\s*[+-]?\d+.*"  # as std::stoi: what follows the digits is not looked at
NUMBERS = {
    "int": ("stoi", INTEGER),
    "size": ("stoi", INTEGER),
    "number": ("stof", r"\s*[+-]?(\d+\.?\d*|\.\d+).*"),
}
SHAPES = ("min", "opt", "max")


class Invalid(ValueError):
    """The help, this message, failure."""


@dataclass(frozen=True)
class Kind:
    name: str
    words: tuple[str, ...] = ()


def table(major: int) -> dict[str, Kind]:
    lines = (Path(__file__).resolve().parent / TABLES[major]).read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: Kind(kind, tuple(words)) for name, kind, *words in rows}


def parse(words: list[str], kinds: dict[str, Kind]) -> dict[str, str]:
    """The options with their values; Invalid where trtexec would not take them."""
    options: dict[str, str] = {}
    unknown = []
    for word in words:
        name, _, value = word.partition("=")
        if name not in kinds or (name in options and kinds[name].name != "texts"):
            unknown.append(f"Unknown option: {name} {value}")
            continue
        _check(name, kinds[name], value)
        options[name] = value
    if unknown:
        raise Invalid("\n".join(unknown))
    if "--onnx" not in options:
        raise Invalid("Model missing or format not recognized")
    return options


def _check(name: str, kind: Kind, value: str) -> None:
    if kind.name in NUMBERS:
        called, takes = NUMBERS[kind.name]
        if not re.fullmatch(takes, value):
            raise Invalid(called)
    elif kind.name == "shapes":
        shapes(value)
    elif kind.name == "choice" and value.lower() not in {"", *map(str.lower, kind.words)}:
        raise Invalid(f"Unknown {name[2:]}: {value}")


def shapes(text: str) -> dict[str, Shape]:
    """input:1x3x224x224,other:1x8 -> {"input": (1, 3, 224, 224), "other": (1, 8)}"""
    return dict(_shape(spec) for spec in text.split(",")) if text else {}


def _shape(spec: str) -> tuple[str, Shape]:
    name, _, dims = spec.rpartition(":")
    if not re.fullmatch(r"-?\d+(x-?\d+)*", dims):
        raise Invalid(
            "stoi conversion failure: failed to parse minShapes/optShapes/maxShapes. "
            "Please double check your input string."
        )
    return name, tuple(int(size) for size in dims.split("x"))


def profiles(options: dict[str, str]) -> dict[str, Profile]:
    """By input. The three go together here; the real one makes up for what is skipped."""
    given = [shapes(options.get(f"--{each}Shapes", "")) for each in SHAPES]
    if len({frozenset(each) for each in given}) > 1:
        raise Invalid("rehearsal: --minShapes, --optShapes and --maxShapes of the same inputs")
    return {name: Profile(*(each[name] for each in given)) for name in given[0]}
