"""What a server is asked about, and how: through the bundle's client or by tensors. Imports nothing
large: a running server answers faster than the pipeline kinds can be imported."""

# os.path returns False, or the text unchanged, where pathlib would raise.
# ruff: noqa: PTH110, PTH111, PTH207

from __future__ import annotations

import glob
import http.client
import os
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict

from scripts.base.errors import UserError
from scripts.settings import arguments

if TYPE_CHECKING:
    from bundle_client import Client, Source
    from bundle_client.show import Found
    from bundle_client.sources import Kind
    from bundle_serving.address import Address
    from bundle_serving.infer import Answer, Question

ASKED_ABOUT = "IMG", "SOUND", "TEXT", "VIDEO", "INPUTS", "IN"
# OUT= takes what is found in these.
WRITTEN = "IMG", "VIDEO"
EXAMPLES = {
    "IMG": ("picture", "IMG=photo.jpg"),
    "SOUND": ("sound", "SOUND=bell.wav"),
}
MISSING = {
    "TEXT": ("no text given", 'try: make {} TEXT="What a day!"'),
    "VIDEO": ("no video given", "try: make {} VIDEO=clip.mp4, or VIDEO=0 for a camera"),
}
STANDARD_INPUT = "-"
TENSORS_TIMEOUT_S = 60


class Known(TypedDict, total=False):
    """What the bundle's client needs to know about a server."""

    url: str
    api_key: str
    ca_file: str
    server_name: str


@dataclass(frozen=True)
class Server:
    """The server to ask."""

    known: Known
    address: Address
    client: Callable[[Sequence[str], Sequence[str]], int]  # the client's program: options, pictures
    watch: Callable[[str, str, Mapping[str, str]], int]  # the model, the video, the environment


@dataclass(frozen=True)
class Asked:
    """A model, and a client to ask it with."""

    server: Server
    client: Client
    model: str


def find_asked(setting: str, command: str, environment: Mapping[str, str]) -> list[str]:
    """What a pipeline is asked about: paths and URLs, or what is given itself, where it may be left
    out."""
    value = environment.get(setting, "")
    require_taken(setting, environment)
    if setting in EXAMPLES:
        return find_sources(value, command, setting)
    if setting in MISSING and not value:
        cause, remedy = MISSING[setting]
        raise UserError(cause, remedy.format(command))
    return [value] if value else []


def find_sources(text: str, command: str = "classify", setting: str = "IMG") -> list[str]:
    """Paths and URLs. ~ and * inside quotes are expanded as the shell would."""
    if not text:
        what, example = EXAMPLES[setting]
        raise UserError(f"no {what} given", f"try: make {command} {example}")
    whole = os.path.expanduser(text)
    if os.path.exists(whole):
        return [whole]
    try:
        words = shlex.split(text)
    except ValueError:
        raise UserError(
            f"{setting}={text} has a quote that is not closed", "close it, or check the path"
        ) from None
    found = [name for word in words for name in _matching(os.path.expanduser(word), setting)]
    if not any(map(_may_be_there, found)):  # before a server is started to be asked about them
        raise UserError(f"{setting}={text}: no such file", "check the path")
    return found


def find_one_picture(text: str, command: str) -> str:
    found = find_sources(text, command)
    if len(found) != 1:
        raise UserError(f"IMG={text} names {len(found)} pictures", f"make {command} takes only one")
    return found[0]


def _may_be_there(name: str) -> bool:
    return name == STANDARD_INPUT or "://" in name or os.path.exists(name)


def _matching(word: str, setting: str) -> list[str]:
    if "://" in word or not glob.has_magic(word) or os.path.exists(word):
        return [word]
    if found := sorted(glob.glob(word, recursive=True)):
        return found
    raise UserError(f"{setting}={word} matches no file", "check the path and the pattern")


def require_taken(setting: str, environment: Mapping[str, str]) -> None:
    """Raises UserError if a pipeline that is asked about `setting` would pass something over."""
    for other in ASKED_ABOUT:
        if other != setting and environment.get(other):
            way = "leave it out" if environment.get(setting) else f"give {setting}=… instead"
            raise UserError(
                f"{other} is given, which this pipeline does not take",
                f"{way}; or name another one: MODEL=",
            )
    if setting not in WRITTEN and environment.get("OUT"):
        raise UserError(
            f"OUT is given, which takes what is found in {' or '.join(WRITTEN)}, not in {setting}",
            "leave it out; JSON=1 prints lines for a file",
        )


def about_pictures(
    server: Server, model: str, pictures: Sequence[str], environment: Mapping[str, str]
) -> int:
    given = arguments.load(environment)
    options = ["--model", model, "--top", str(given.top)]
    if given.out and environment.get("JSON"):
        raise UserError(
            "OUT= and JSON=1 both say where the answers go",
            "leave one out; OUT=answers.jsonl writes lines of JSON, too",
        )
    if given.out:
        # The server is on this machine: as many as it takes for its full rate, in batches.
        at_once = str(4 * max(2, os.cpu_count() or 1))
        options += ["--out", str(given.out), "--concurrency", at_once]
    return server.client([*options, *(["--json"] if environment.get("JSON") else [])], pictures)


def about_files(
    server: Server,
    files: Sequence[str],
    environment: Mapping[str, str],
    kind: Kind,
    ask: Callable[[Client, Source], Found],
) -> int:
    """One after the other; prints what is found, and returns the exit code."""
    from bundle_client import Client, ClientError, Result
    from bundle_client.errors import CONCERNS_ALL
    from bundle_client.show import as_json, as_table, print_error
    from bundle_client.sources import expand, name_of
    from scripts.base import console

    failed = 0
    with Client(**server.known) as client:
        for source in expand(files, kind):
            try:
                found = ask(client, source)
            except ClientError as fault:
                failed += 1
                refused = Result(name_of(source), error=fault)
                print_error(refused)
                if environment.get("JSON"):
                    print(as_json(refused))
                if isinstance(fault, CONCERNS_ALL):
                    break
            else:
                print(as_json(found) if environment.get("JSON") else as_table(found, console.out))
    return 1 if failed else 0


def ask_tensors(
    address: Address,
    model: str,
    questions: Sequence[Question],
    headers: Mapping[str, str] = MappingProxyType({}),
    remedy: str = "see make logs",
) -> Generator[Answer]:
    """Over HTTP, each when its answer is wanted."""
    from bundle_serving import infer

    connection = address.connection(TENSORS_TIMEOUT_S)
    try:
        for each in questions:
            yield infer.ask(connection, model, each, headers)
    except (OSError, ValueError, http.client.HTTPException) as fault:
        reason = str(fault) or type(fault).__name__
        raise UserError(f"{model} does not answer: {reason}", remedy) from None
    finally:
        connection.close()
