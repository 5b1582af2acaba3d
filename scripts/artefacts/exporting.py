"""A step that exports what a specification says: a dataclass, whose fields are its arguments."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from scripts.artefacts.manifest import ExportSpec, why_export

Spec = TypeVar("Spec", bound=ExportSpec)


def as_words(spec: Any) -> list[str | Path]:
    """The arguments of its step. Files are paths, which a container may see elsewhere."""
    words: list[str | Path] = []
    for field in fields(spec):
        value = getattr(spec, field.name)
        if value is None or value is False:
            continue
        words.append(f"--{field.name}")
        if isinstance(value, Mapping):
            words.append(json.dumps(value))
        elif isinstance(value, tuple):
            words.append(",".join(value))
        elif isinstance(value, Path):
            words.append(value)
        elif value is not True:
            is_file = field.name == "weights" and Path(value).is_absolute()
            words.append(Path(value) if is_file else str(value))
    return words


def run(
    kind: type[Spec],
    export: Callable[[Spec, Path], None],
    argv: list[str] | None = None,
    precisions: Collection[str] = (),
) -> int:
    parser = argparse.ArgumentParser(description=sys.modules[kind.__module__].__doc__)
    hints = get_type_hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]  # all specifications are dataclasses
        if hints[field.name] is bool:
            parser.add_argument(f"--{field.name}", action="store_true")
            continue
        is_required = field.default is MISSING
        parser.add_argument(
            f"--{field.name}",
            type=_reader(hints[field.name]),
            required=is_required,
            default=None if is_required else field.default,
            choices=precisions if field.name == "precision" and precisions else None,
        )
    parser.add_argument("--out", type=Path, required=True)
    options = vars(parser.parse_args(argv))
    out = options.pop("out")
    return export_unless_it_fits(kind(**options), out, export)


def export_unless_it_fits(spec: Spec, out: Path, export: Callable[[Spec, Path], None]) -> int:
    if why_export(out, spec) is None:
        print(f"{out} fits: nothing to export")
    else:
        export(spec, out)
    return 0


def _reader(hint: Any) -> Callable[[str], Any]:
    if get_origin(hint) is tuple:
        return lambda text: tuple(text.split(","))
    if get_origin(hint) in (dict, Mapping):
        read: Callable[[str], Any] = json.loads
        return read
    found = next((each for each in get_args(hint) if each is not type(None)), hint)
    made: Callable[[str], Any] = found
    return made
