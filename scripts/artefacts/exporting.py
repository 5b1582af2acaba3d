"""What a step is given: the arguments of a function. Where one is a specification, which is a
dataclass, it is given its fields."""

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import is_dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from scripts.artefacts.manifest import ExportSpec, why_export
from scripts.base.errors import run_guarded

EMPTY = inspect.Parameter.empty
is_specification: Callable[[Any], bool] = is_dataclass
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
        elif is_specification(value):
            words += as_words(value)
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
    sys.exit(run_guarded(lambda: call(main, None, **choices)))


def call(main: Callable[..., T], words: list[str] | None = None, **choices: Collection[str]) -> T:
    """As the command line, or these words, tell."""
    about = (sys.modules[main.__module__].__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(
        description=about, allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    for name, (hint, is_required) in _list_options(main, is_needed=True).items():
        option, several = f"--{name.replace('_', '-')}", get_args(hint)[:1] == (Path,)
        if hint is bool:
            parser.add_argument(option, action="store_true")
            continue
        parser.add_argument(
            option,
            type=Path if several else _reader(hint),
            nargs="*" if several else None,
            required=is_required,
            choices=choices.get(name),
        )
    return _call_with(main, vars(parser.parse_args(words)))


def unless_it_fits(export: Callable[[Spec, Path], None]) -> Callable[..., None]:
    """The program of a step that exports what a specification says."""

    @wraps(export)
    def export_or_leave(*given: Any, **named: Any) -> None:
        spec, out = inspect.signature(export).bind(*given, **named).args
        if why_export(out, spec) is None:
            print(f"{out} fits: nothing to export")
        else:
            export(spec, out)

    return export_or_leave


def _list_options(what: Callable[..., Any], is_needed: bool) -> dict[str, tuple[Any, bool]]:
    """By name: the type, and whether it must be given. Two specifications may have a field of the
    same name."""
    found: dict[str, tuple[Any, bool]] = {}
    for name, hint, default in _list_arguments(what):
        option = hint, is_needed and default is EMPTY
        more = _list_options(*option) if is_specification(hint) else {name: option}
        found |= {each: more[each] for each in more if each not in found}
    return found


def _call_with(what: Callable[..., T], given: Mapping[str, Any]) -> T:
    """A specification that need not be there is if all that it needs is given."""
    found = {}
    for name, hint, default in _list_arguments(what):
        if is_specification(hint):
            needed = {name for name, _, least in _list_arguments(hint) if least is EMPTY}
            found[name] = _call_with(hint, given) if needed <= given.keys() else default
        else:
            value = given.get(name, default)
            found[name] = tuple(value) if isinstance(value, list) else value
    return what(**found)


def _list_arguments(what: Callable[..., Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, type, and what it is if it is not given."""
    hints = get_type_hints(what)
    for name, parameter in inspect.signature(what).parameters.items():
        hint, default = hints[name], False if hints[name] is bool else parameter.default
        if type(None) in get_args(hint):
            (hint,) = (each for each in get_args(hint) if each is not type(None))
            default = None if default is EMPTY else default
        yield name, hint, default


def _reader(hint: Any) -> Callable[[str], Any]:
    read: Callable[[str], Any] = hint
    if get_origin(hint) is tuple:
        each = get_args(hint)[0]
        return lambda text: tuple(map(each, text.split(",")))
    return json.loads if get_origin(hint) in (dict, Mapping) else read
