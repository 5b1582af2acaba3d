"""One setting: its default, its parser, what it affects, and its comment.

Stdlib only, and little of it: every command reads the settings first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar, overload

from scripts.base.errors import UserError
from scripts.base.paths import expand, locate

T = TypeVar("T")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)


class Part(Enum):
    """What a setting affects."""

    VERSION = auto()  # what is served; a change takes a new version
    CHECK = auto()  # how a version is built and checked, not its answers
    SERVER = auto()  # how the server is started; a change takes a restart
    DOOR = auto()  # the door's configuration
    MACHINE = auto()  # how this machine runs a version
    EXTRA = auto()  # an additional pipeline
    COMMAND = auto()  # only what a command does


class Texts(Protocol):
    """Anything with the settings' texts by name."""

    @property
    def values(self) -> dict[str, str]: ...


class Setting(Generic[T_co]):
    """A descriptor: the value on an instance, the setting itself on the class."""

    name: str
    remedy: str
    # Whether its text may name files where the user is, among other things.
    names_files = False

    def __init__(
        self, default: str, read: Callable[[str], T_co], wanted: str, comment: str, *parts: Part
    ) -> None:
        self.default, self.wanted, self.parts = default, wanted, parts
        self.comment = " ".join(comment.split())
        self._read = read

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = attribute.rstrip("_").upper()
        self.remedy = getattr(owner, "remedy", "")

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T_co]: ...
    @overload
    def __get__(self, instance: Texts, owner: type) -> T_co: ...
    def __get__(self, instance: Texts | None, owner: type) -> Setting[T_co] | T_co:
        return self if instance is None else self.value_in(instance)

    def value_in(self, texts: Texts) -> T_co:
        return self.read(texts.values[self.name])

    def read(self, text: str) -> T_co:
        try:
            return self._read(text)
        except ValueError:
            raise UserError(f"{self.name}={text} must be {self.wanted}", self.remedy) from None


def text(default: str, comment: str, *parts: Part) -> Setting[str]:
    return Setting(default, str, "", comment, *parts)


def text_or_files(default: str, comment: str, *parts: Part) -> Setting[str]:
    made = text(default, comment, *parts)
    made.names_files = True
    return made


def choice(choices: tuple[str, ...], comment: str, *parts: Part) -> Setting[str]:
    """The first is the default."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    *others, last = (each or "empty" for each in choices)
    return Setting(choices[0], read, f"{', '.join(others)} or {last}", comment, *parts)


def whole(default: int, comment: str, *parts: Part) -> Setting[int]:
    return Setting(str(default), _whole, _describe_wanted(None), comment, *parts)


def whole_or(
    fallback: Callable[[], T], comment: str, *parts: Part, most: int | None = None
) -> Setting[int | T]:
    """Empty: the fallback's value."""
    read = _read_or(lambda text: _whole(text, most), fallback)
    return Setting("", read, _describe_wanted(most), comment, *parts)


def whole_or_none(comment: str, *parts: Part, most: int | None = None) -> Setting[int | None]:
    return whole_or(lambda: None, comment, *parts, most=most)


def count_or_none(comment: str, *parts: Part) -> Setting[int | None]:
    """None at all may be wanted too."""
    read = _read_or(lambda text: 0 if text == "0" else _whole(text), lambda: None)
    return Setting("", read, "0 or a positive integer", comment, *parts)


def port(default: int, comment: str, *parts: Part) -> Setting[int]:
    return Setting(str(default), lambda text: _whole(text, 65535), "a port", comment, *parts)


def number(default: str, comment: str, *parts: Part) -> Setting[float]:
    return Setting(default, _number, "a positive number", comment, *parts)


def number_or_none(comment: str, *parts: Part) -> Setting[float | None]:
    return Setting("", _read_or(_number, lambda: None), "a positive number", comment, *parts)


def flag(comment: str, *parts: Part) -> Setting[bool]:
    """0 and no must not allow what it would allow: they are refused."""

    def read(text: str) -> bool:
        if text not in ("", "1"):
            raise ValueError
        return bool(text)

    return Setting("", read, "1 or empty", comment, *parts)


def size(default: str, comment: str, *parts: Part) -> Setting[str]:
    """As Docker takes it."""

    def read(text: str) -> str:
        if not re.fullmatch(r"(\d+(\.\d+)?[bkmg]b?)?", text, re.ASCII | re.IGNORECASE):
            raise ValueError
        return text

    return Setting(default, read, "an amount such as 512m or 5.6g", comment, *parts)


def path(comment: str, *parts: Part) -> Setting[Path | None]:
    return Setting("", _read_or(absolute, lambda: None), "a path", comment, *parts)


def path_or(words: tuple[str, ...], comment: str, *parts: Part) -> Setting[str]:
    """One of these words (the first is the default), or a path, made absolute."""

    def read(text: str) -> str:
        return text if text in words else str(absolute(text, locate))

    return Setting(words[0], read, f"{', '.join(filter(None, words))} or a file", comment, *parts)


def path_or_url(comment: str, *parts: Part) -> Setting[str]:
    """A path, made absolute; or an address, such as s3://bucket/path. Empty: none."""

    def read(text: str) -> str:
        return str(absolute(text)) if text and "://" not in text else text

    return Setting("", read, "a path", comment, *parts)


def absolute(text: str, resolve: Callable[[Path], Path] = Path.resolve) -> Path:
    try:
        return resolve(expand(text))
    except RuntimeError:  # links that go round in a circle
        raise ValueError from None


def of_class(owner: type) -> list[Setting[Any]]:
    """In the order of their definition."""
    return [each for each in vars(owner).values() if isinstance(each, Setting)]


def gather(owner: type[T], about: str | None, *modules: ModuleType) -> type[T]:
    """A class of what kinds of pipelines and extensions bring in such modules of theirs."""
    found = {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, Setting)
    }
    return type(f"Brought{owner.__name__}", (owner,), {"__doc__": about, **found})


def _read_or(read: Callable[[str], T], fallback: Callable[[], U]) -> Callable[[str], T | U]:
    return lambda text: read(text) if text else fallback()


def _describe_wanted(most: int | None) -> str:
    return f"between 1 and {most}" if most else "a positive integer"


def _whole(text: str, most: int | None = None) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1 or (most and int(text) > most):
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    if not 0 < float(text) < math.inf:  # NaN is refused too
        raise ValueError
    return float(text)
