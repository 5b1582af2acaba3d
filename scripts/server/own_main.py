"""Starts the server. With FROM= or LABELS=, its main pipeline is made of a network of the user's
own, and ImageNet's is not needed."""

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bundle_serving import NAME
from scripts.base import console, files, lock
from scripts.base.errors import UserError
from scripts.base.paths import DOTENV
from scripts.recipes import folders, pipelines
from scripts.recipes.layout import CPU
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, own_pipelines
from scripts.repository.shared import Shared
from scripts.server import agreeing, engines, own_network, up
from scripts.server.served import serving
from scripts.server.wanted_settings import fill_from_version
from scripts.settings import arguments, dotenv_file
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state
from scripts.stacks.stack import Stack
from scripts.stacks.state import State

# One of these, and the network is the user's own.
OWN = ("FROM", "ONNX", "LABELS")
# Which say something of it.
ABOUT = ("NAME", "SIZE", "OUTPUT", "PICTURES")
WORDS = (*OWN, *ABOUT, "ARCH", "WEIGHTS")


def bring_up(
    settings: Settings, command: str = "up", typed: Mapping[str, str] = os.environ
) -> State:
    if not (given := list_given(typed)):
        return up.bring_up(settings, command)
    with lock.one_at_a_time(lock.OF_ADDITIONS):
        return _bring_up_own(given, settings, command, typed)


def _bring_up_own(
    given: Mapping[str, str], settings: Settings, command: str, typed: Mapping[str, str]
) -> State:
    name = _settle_name(given, settings, typed)
    if "FROM" in given:  # whose weights are in its file by now
        settings = Settings(settings.values, settings.given - {"WEIGHTS"})
    samples = agreeing.samples(arguments.load().sample)
    if _is_made_of(name, given):
        pipelines.make_main(name)
        own_network.tell_changed(pipelines.main())
        server = up.bring_up(settings, command)
        agreeing.require_shown(pipelines.main(), server, samples, f"{name} serves all the same")
        return server
    with _take_in(name, given, settings, _choose_stack) as pipeline:
        server = up.bring_up(settings, command)
        agreeing.require(pipeline, server)
        agreeing.require_shown(pipeline, server, samples)
    return server


def require_a_network(typed: Collection[str]) -> None:
    """That what was typed of a new one does not go without it."""
    if list_given(os.environ):
        return
    for word in ABOUT:
        if (text := os.environ.get(word, "").strip()) and word in typed:
            is_there = word == "NAME" and text in pipelines.recipes()
            raise UserError(
                f"{word}={text} is of a new network, and nothing says which",
                f"{text} is there: make up MAIN={text}"
                if is_there
                else "name it: FROM=birds.onnx, or LABELS= beside ARCH= and WEIGHTS=",
            )


StackOf = Callable[[Settings], Stack]


def take_in(stack_of: StackOf, typed: Mapping[str, str]) -> None:
    """For a server that reads it by itself; on a GPU, for the next steps."""
    given, settings = list_given(typed), Settings.load(typed)
    up.require_here(settings)
    name = _settle_name(given, settings, typed)
    with ExitStack() as whole:
        if _is_made_of(name, given):
            pipelines.make_main(name)
        else:
            whole.enter_context(_take_in(name, given, settings, stack_of))
        main = pipelines.main()
        settings = fill_from_version(settings, main, serving(main))
        with lock.one_at_a_time():
            stack = stack_of(settings)
            if stack.engine is CPU:
                up.lay_out_main(stack, settings)
                return
            with archive.draft(main, None) as draft:
                engines.export(stack, settings, main, draft)
            engines.hand_on(stack, settings, main)
            pipelines.note_main()


def _choose_stack(settings: Settings) -> Stack:
    return flavour.stack(flavour.choose(settings)[0], settings)


@contextmanager
def _take_in(
    name: str, given: Mapping[str, str], settings: Settings, stack_of: StackOf
) -> Iterator[Pipeline]:
    """Makes it the main pipeline; if what follows fails, nothing of it is left."""
    own_pipelines.require_unused(name)
    before = pipelines.main_name()
    with own_pipelines.keep_folder(name, given) as networks:
        wanted = Pipeline(name, own_network.recipe_of(name, given))
        own_pipelines.require_new(wanted)
        filled = fill_from_version(settings, wanted, None)
        pipeline = own_network.export_and_check(wanted, filled, stack_of(filled))
        with own_pipelines.write_pipeline(pipeline, pipeline.recipe.head.format(name=name)):
            files.write(networks / own_pipelines.GIVEN, json.dumps(given, indent=1) + "\n")
            pipelines.make_main(name)
            try:
                with Shared(settings, pipeline).forget_on_failure():
                    yield pipeline
            except BaseException:  # Ctrl-C too
                _go_back(pipeline, before)
                raise


def _settle_name(given: Mapping[str, str], settings: Settings, typed: Mapping[str, str]) -> str:
    """Of one network and one main pipeline, not of two."""
    name = given.get("NAME") or _find_name(given)
    own_pipelines.require_a_name(name)
    if settings.main and settings.main != name:
        raise UserError(
            f"MAIN={settings.main} names one main pipeline, and FROM= or LABELS= another, {name}",
            "omit one of them",
        )
    written = dotenv_file.read(DOTENV)
    if {"FROM", "ONNX"} & given.keys():
        for word in ("ARCH", "WEIGHTS"):
            if written.get(word) and not typed.get(word):
                raise UserError(f"{word} in .env already names a network", "remove it there")
    return name


def list_given(typed: Mapping[str, str]) -> dict[str, str]:
    """What says something of the network, if it is the user's own."""
    written = {**dotenv_file.read(DOTENV), **typed}
    given = {word: text for word in WORDS if (text := written.get(word, "").strip())}
    return given if {*OWN} & given.keys() else {}


def _find_name(given: Mapping[str, str]) -> str:
    """Another than its own, if it was taken in by that: 1.5.0 took the computer's in WSL 2."""
    notes = sorted(folders.own().networks.glob(f"*/{own_pipelines.GIVEN}"))
    made = [each.parent.name for each in notes if given.items() <= files.read_json(each).items()]
    there = [name for name in made if name in pipelines.recipes()]
    name = _make_name(given)
    return name if name in there or not there else there[0]


def _make_name(given: Mapping[str, str]) -> str:
    """From that of the file, folder or network."""
    words = ("FROM", "ONNX", "WEIGHTS", "ARCH", "LABELS")
    source = next(given[word] for word in words if word in given)
    name = re.sub("[^a-z0-9]+", "_", Path(source).stem.lower()).strip("_")
    if not re.fullmatch(NAME, name):
        raise UserError(f"{source} gives no name to a pipeline", "name it: NAME=birds")
    return name


def _is_made_of(name: str, given: Mapping[str, str]) -> bool:
    noted = files.read_json(folders.own().networks / name / own_pipelines.GIVEN)
    if not (given.items() <= noted.items() and name in pipelines.recipes()):
        return False
    if kept := [f"{word}={text}" for word, text in noted.items() if word not in given]:
        console.note(f"{name} is taken in already, with {', '.join(kept)}")
    return True


def _go_back(pipeline: Pipeline, before: str) -> None:
    """To what was served, if the new one was served already."""
    pipelines.make_main(before)
    known = state.load()
    if known is None or known.main != pipeline.ensemble:
        return
    if serving(pipelines.main()):
        console.note(f"{before} is served again")
        up.bring_up(known.settings_at_start.replace_with(FLAVOUR=known.flavour))
    else:
        flavour.stack_of(known).stop()
        pipelines.forget_main()
