"""What a step is given: the arguments of a function, or the fields of a specification, which is a
dataclass."""

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from scripts.artefacts.manifest import ExportSpec, why_export
from scripts.base.errors import run_guarded

T = TypeVar("T")
Spec = TypeVar("Spec", bound=ExportSpec)


def as_words(given: Any) -> list[str | Path]:
    """On its command line; by name, or as its specification. Files are paths, which a container may
    see elsewhere."""
    words: list[str | Path] = []
    for key, value in (given if isinstance(given, Mapping) else vars(given)).items():
        name = f"--{key.replace('_', '-')}"
        if isinstance(value, str) and key == "weights" and Path(value).is_absolute():
            value = Path(value)
        if value is None or value is False or value == ():
            continue
        if value is True:
            words.append(name)
        elif isinstance(value, Path):
            words += [name, value]
        elif isinstance(value, tuple) and any(isinstance(each, Path) for each in value):
            words += [name, *value]
        elif isinstance(value, Mapping):
            words.append(f"{name}={json.dumps(value)}")
        else:
            each = value if isinstance(value, tuple) else (value,)
            words.append(f"{name}={','.join(map(str, each))}")
    return words


def start(main: Callable[..., int | None], **choices: Collection[str]) -> NoReturn:
    """As a program that is told by `as_words`; an argument may have choices."""
    sys.exit(run_guarded(lambda: main(**_as_given(make_parser(main, choices).parse_args()))))


def read(kind: Callable[..., T], argv: list[str] | None = None, **choices: Collection[str]) -> T:
    return kind(**_as_given(make_parser(kind, choices).parse_args(argv)))


def read_part(kind: Callable[..., T], argv: list[str] | None) -> tuple[T, list[str]]:
    """And what is for others."""
    found, rest = make_parser(kind, {}).parse_known_args(argv)
    return kind(**_as_given(found)), rest


def run(
    kind: type[Spec], export: Callable[[Spec, Path], None], precisions: Collection[str] = ()
) -> NoReturn:
    """The program of a step that exports what a specification says."""
    sys.exit(run_guarded(lambda: export_as_told(kind, export, None, precisions)))


def export_as_told(
    kind: type[Spec],
    export: Callable[[Spec, Path], None],
    argv: list[str] | None,
    precisions: Collection[str] = (),
) -> None:
    parser = make_parser(kind, {"precision": precisions} if precisions else {})
    parser.add_argument("--out", type=Path, required=True)
    options = _as_given(parser.parse_args(argv))
    out = options.pop("out")
    export_unless_it_fits(kind(**options), out, export)


def export_unless_it_fits(spec: Spec, out: Path, export: Callable[[Spec, Path], None]) -> None:
    if why_export(out, spec) is None:
        print(f"{out} fits: nothing to export")
    else:
        export(spec, out)


def make_parser(
    what: Callable[..., Any], choices: Mapping[str, Collection[str]]
) -> argparse.ArgumentParser:
    about = (sys.modules[what.__module__].__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(description=about, allow_abbrev=False)
    hints = get_type_hints(what)
    for name, parameter in inspect.signature(what).parameters.items():
        option, hint = f"--{name.replace('_', '-')}", hints[name]
        if hint is bool:
            parser.add_argument(option, action="store_true")
            continue
        kinds = [each for each in get_args(hint) if each is not type(None)]
        is_optional = type(None) in get_args(hint)
        if is_optional:
            (hint,) = kinds
        several = get_args(hint)[:1] == (Path,)
        parser.add_argument(
            option,
            type=Path if several else _reader(hint),
            nargs="*" if several else None,
            required=not is_optional and parameter.default is parameter.empty,
            default=None if parameter.default is parameter.empty else parameter.default,
            choices=choices.get(name),
        )
    return parser


def _as_given(found: argparse.Namespace) -> dict[str, Any]:
    items = vars(found).items()
    return {name: tuple(each) if isinstance(each, list) else each for name, each in items}


def _reader(hint: Any) -> Callable[[str], Any]:
    read: Callable[[str], Any] = hint
    if get_origin(hint) is tuple:
        each = get_args(hint)[0]
        return lambda text: tuple(map(each, text.split(",")))
    return json.loads if get_origin(hint) in (dict, Mapping) else read
