"""The rehearsal's reading of trtexec's command line, as strict as sampleOptions.cpp.

A word that the table of the played TensorRT version does not have, or that stands there twice, is
left over, and what is left over is an unknown option: that is how the real one finds them too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

Shape = tuple[int, ...]
Shapes = dict[str, Shape]

TABLES = {10: "options_10_16.txt", 11: "options_11_1.txt"}

UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
POOLS = ("workspace", "dlaSRAM", "dlaLocalDRAM", "dlaGlobalDRAM", "tacticSharedMem")

# Where the message is not "Unknown <name>: <value>".
CHOICES = {
    "--sparsity": "Unknown sparsity mode: {}",
    "--precisionConstraints": "Unknown precision constraints: {}",
    "--tuningSearch": "Unknown tuning search algorithm: {}",
    "--runtimePlatform": "Unknown runtime platform: {}. Valid options: SameAsBuild, WindowsAMD64",
    "--hardwareCompatibilityLevel": "Unknown hardwareCompatibilityLevel: {}"
    ". Valid options: none, ampere+, sameComputeCapability.",
}


class Invalid(ValueError):
    """std::invalid_argument: the help, this message, failure."""


class OutOfRange(ValueError):
    """std::out_of_range, which trtexec does not expect."""


class Refused(RuntimeError):
    """A stage of the build says no; the lines for the log, the first cause first."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True)
class Kind:
    name: str
    words: tuple[str, ...] = ()


def table(major: int) -> dict[str, Kind]:
    if major not in TABLES:
        raise SystemExit(f"rehearsal: there is no option table for TensorRT {major}")
    lines = (Path(__file__).resolve().parent / TABLES[major]).read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: Kind(kind, tuple(words)) for name, kind, *words in rows}


@dataclass
class Options:
    values: dict[str, str]
    unknown: list[tuple[str, str]]

    def has(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def shapes(self, name: str) -> Shapes:
        return shapes(self.text(name))


def parse(words: list[str], kinds: dict[str, Kind]) -> Options:
    """Raises Invalid for a value that its option does not take."""
    options = Options({}, [])
    for word in words:
        name, _, value = word.partition("=")
        kind = kinds.get(name)
        twice = name in options.values
        if twice and kind is not None and kind.name == "shapes":
            raise Invalid(
                "Multiple --minShapes/--optShapes/--maxShapes without --profile are not allowed. "
            )
        if kind is None or (twice and kind.name != "texts"):
            options.unknown.append((name, value))
            continue
        _check(name, kind, value)
        options.values[name] = value
    if options.has("--loadEngine") and options.has("--saveEngine"):
        raise Invalid("Incompatible load and save engine options selected")
    if options.has("--best") and options.has("--stronglyTyped"):
        raise Invalid(
            "--best and --stronglyTyped cannot be both set. --best enables implicit precisions, "
            "while --stronglyTyped enforces explicit precisions."
        )
    if not options.has("--loadEngine") and not options.has("--onnx"):
        raise Invalid("Model missing or format not recognized")
    return options


def _check(name: str, kind: Kind, value: str) -> None:
    if kind.name == "int":
        integer(value)
    elif kind.name == "number":
        _number(value)
    elif kind.name == "size":
        _size(value)
    elif kind.name == "shapes":
        _named_shapes(name, value)
    elif kind.name == "pools":
        _pools(value)
    elif kind.name == "choice":
        _choice(name, kind, value)


def integer(text: str) -> int:
    """As std::stoi: what follows the digits is not looked at."""
    found = re.match(r"\s*[+-]?\d+", text)
    if not found:
        raise Invalid("stoi")
    number = int(found.group())
    if not -(2**31) <= number < 2**31:
        raise OutOfRange("stoi")
    return number


def _number(text: str) -> float:
    found = re.match(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text)
    if not found:
        raise Invalid("stof")
    return float(found.group())


def _size(text: str) -> int:
    number = integer(text)
    unit = text[-1].upper()
    if not unit.isdigit() and unit not in UNITS:
        raise Invalid(
            f"Error parsing \"{text}\": invalid unit specifier '{unit}'. Valid base-2 unit "
            "suffixes include: B (Bytes), G (Gibibytes), K (Kibibytes), M (Mebibytes)."
        )
    return number * UNITS.get(unit, 1)


def _pools(text: str) -> None:
    for spec in filter(None, text.split(",")):
        name, _, size = spec.rpartition(":")
        try:
            number = _size(size)
        except Invalid as fault:
            raise Invalid(
                f"{fault} conversion failure: failed to parse --memPoolSize. "
                "Please double check your input string."
            ) from None
        if number < 0:
            raise Invalid(f"Negative memory pool size: {number}")
        if name not in POOLS:
            raise Invalid(f"Unknown memory pool: {name}")


def _choice(name: str, kind: Kind, value: str) -> None:
    known = {word.lower() for word in kind.words}
    if value.lower() in known or (not value and name != "--sparsity"):
        return
    raise Invalid(CHOICES.get(name, f"Unknown {name[2:]}: {{}}").format(value))


def _named_shapes(name: str, value: str) -> None:
    try:
        shapes(value)
    except Invalid as fault:
        if name not in ("--minShapes", "--optShapes", "--maxShapes"):
            raise
        raise Invalid(
            f"{fault} conversion failure: failed to parse minShapes/optShapes/maxShapes. "
            "Please double check your input string."
        ) from None


def shapes(text: str) -> Shapes:
    """input:1x3x224x224,other:1x8 -> {"input": (1, 3, 224, 224), "other": (1, 8)}"""
    return dict(_shape(spec) for spec in text.split(",")) if text else {}


def _shape(spec: str) -> tuple[str, Shape]:
    if "'" in spec:
        parts = spec.split("'")
        if len(parts) != 3:
            raise Invalid(
                f"Found invalid number of 's when parsing {spec}. "
                f"Expected: 2, received: {len(parts) - 1}."
            )
        name, dims = parts[0] + parts[1], parts[2][1:]
    else:
        # Without a colon the real one takes the whole for both; the name is then found nowhere.
        name, colon, dims = spec.rpartition(":")
        name = name if colon else spec
    return name, () if dims == "scalar" else tuple(integer(each) for each in dims.split("x"))


@dataclass(frozen=True)
class Profile:
    """The shapes of one input that a plan is built for."""

    min: Shape
    opt: Shape
    max: Shape


def profiles(options: Options) -> tuple[dict[str, Profile], list[str]]:
    """By input, with the warnings for what was left out; as processShapes fills it in."""
    given = {each: options.shapes(f"--{each}Shapes") for each in ("min", "opt", "max")}
    instead = {"min": ("opt", "max"), "opt": ("max", "min"), "max": ("opt", "min")}
    names = dict.fromkeys(name for each in given.values() for name in each)
    found: dict[str, Profile] = {}
    warnings = []
    for name in names:
        chosen = {}
        for each, shapes_given in given.items():
            source = each
            if not options.has(f"--{each}Shapes"):
                source = next(s for s in instead[each] if options.has(f"--{s}Shapes"))
                warnings.append(
                    f"{source}Shapes is being broadcasted to {each}Shapes for tensor {name}"
                )
                shapes_given = given[source]
            chosen[each] = shapes_given.get(name, ())
        found[name] = Profile(**chosen)
    for name, shape in options.shapes("--shapes").items():
        found.setdefault(name, Profile(shape, shape, shape))
    return found, warnings
