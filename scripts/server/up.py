"""Starts the server, or loads another pipeline into it: exports, checks and lays out what has
changed, then serves it.

A running server that fits is left alone.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial

from bundle_serving.process import main_pipeline
from bundle_serving.process.server_log import explain_end
from scripts.base import console, files, interrupts, lock, ports
from scripts.base.errors import UserError
from scripts.recipes import folders, pipelines
from scripts.recipes.layout import Engine
from scripts.recipes.pipelines import Pipeline
from scripts.repository import (
    archive,
    history,
    layout_number,
    live,
    model_folders,
    own_pipelines,
    place,
)
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.server import engines, loaded_beside, own_network
from scripts.server.layouts import fingerprint, hash_layout, lay_out_alone, layout
from scripts.server.recover import find_recovered, recover
from scripts.server.served import brings_up, describe_server, serving, unhealthy_reason
from scripts.server.wanted_settings import fill_from_version, settings_of
from scripts.settings.settings import Settings
from scripts.stacks import exposure, flavour, state
from scripts.stacks.stack import Stack
from scripts.stacks.state import State

# Seconds that the keeper gets to restore a server that does not answer.
KEEPERS_S = 15
ASK_AGAIN_S = 0.05


def bring_up(settings: Settings, command: str = "up") -> State:
    """Omitted settings keep the live version's values. Whatever could fail is looked at before
    anything that runs is touched; `command` is the one to name in a remedy."""
    main = pipelines.main()
    with lock.one_at_a_time():
        if elsewhere := place.find(settings):
            elsewhere.require_reachable()
        shared = Shared(settings, main)
        shared.pull()
        seed = serving(main)
        settings = fill_from_version(settings, main, seed)
        name, why = flavour.choose(settings)
        stack = flavour.stack(name, settings)
        if not stack.many:  # whose engines know what is free on their nodes
            _require_ports(stack, settings, command)
        if known := state.load():
            flavour.stack_of(known).end_strays(known)
        if seed and not recover(known, seed, shared) and known:
            flavour.stack_of(known).stop()
            recover(None, seed, shared)
        stuck = _recover_beside(state.load(), settings)
        console.note(f"flavour {name}: {why}")
        if not stack.many:
            _note_cores(settings.cores)
        if settings.preprocess == "dali" and name != "gpu":
            raise UserError(
                f"PREPROCESS=dali needs a GPU, and flavour {name} has none", "use PREPROCESS=python"
            )
        exposure.require_keys(settings)
        require_lenders(main, stack.engine)
        stack.prepare()
        _furnish(main)
        version = _build_or_keep(stack, settings, main, seed, shared)
        with ExitStack() as settled:
            as_before = partial(_lay_out_as_before, state.load(), shared, settings)
            with _begun(version, seed, shared, as_before):
                lay_out_alone(version, settings, stack.engine)
                _keep_beside(pipelines.find_noted())
                many = stack.many
                beside = loaded_beside.lay_out(settings, stack.engine, () if many else stuck)
                shared.push_all()
                loads = many.list_pipelines(settings, version, beside) if many else {}
                server = _serve(stack, settings, version, loads, settled)
            _record(shared, version, seed, settings)
            note_main()
        if not stack.many:
            loaded_beside.load_again(server, beside)
        console.note(f"drop a picture on its page: {server.shown[0].url}/")
        return server


def _recover_beside(known: State | None, settings: Settings) -> list[str]:
    """What was killed about the pipelines that come with the main one. Returns the ensembles for
    which the running server prevents it: it may still be loading what would be removed."""
    running = known if known and flavour.stack_of(known).alive() else None
    return [
        version.pipeline.ensemble
        for version in loaded_beside.read_remembered()
        if not recover(running, version, Shared(settings, version.pipeline))
    ]


def _note_cores(wanted: int) -> None:
    """Not refused: .env may come from another machine."""
    here: int = Settings.cores.read("")
    if wanted > here:
        console.note(f"CORES={wanted} is more than this machine has, which slows it: CORES={here}")


def bring_up_beside(pipeline: Pipeline) -> State:
    """Loads another pipeline into the running server, or into each of several."""
    with lock.one_at_a_time():
        server, shared, seed = find_recovered(pipeline)
        settings = settings_of(pipeline, server.settings, seed)
        stack = flavour.stack(server.flavour, settings)
        require_lenders(pipeline, stack.engine)
        stack.prepare()
        _furnish(pipeline)
        before = hash_layout(pipeline)
        version = _build_or_keep(stack, settings, pipeline, seed, shared)
        with _begun(version, seed, shared, partial(_serve_as_before, server, version)):
            lay_out_alone(version, settings, stack.engine)
            if stack.many:
                server = stack.many.load(server, version)
            else:
                loaded_beside.load(server, pipeline, hash_layout(pipeline) != before)
        _record(shared, version, seed, settings)
        console.note(f"up: {describe_server(server, version)}", version=version.number)
    return server


@contextmanager
def _begun(
    version: Version, seed: Version | None, shared: Shared, undo: Callable[[Version], bool]
) -> Iterator[None]:
    """Noted, so that the next command undoes it (`recover`) if this one is killed while its files
    are laid out, and another version is the live one. `undo` says whether that serves again."""
    if seed and version != seed:
        shared.begin(version.number, "up")
    try:
        yield
    except BaseException as fault:  # Ctrl-C too, and a second one is not to interrupt the way back
        with interrupts.ignore_interrupts(), suppress(UserError):  # why it failed is what to tell
            if seed and undo(seed) and version != seed:
                why = history.explain(fault)
                shared.record(history.STAYED, version.number, "up", why)
        raise


def _serve_as_before(server: State, version: Version, seed: Version) -> bool:
    """Else the server would have the new version alone with its next restart."""
    stack = flavour.stack_of(server)
    if stack.many and state.load() != server:  # they have come to serve it
        return False
    if not stack.many:
        with suppress(UserError):  # the server may have ended with that load
            loaded_beside.wait_for(server, version)
    lay_out_alone(seed, server.settings_at_start.fill_from(seed.settings), stack.engine)
    if not stack.many:  # which have gone back
        loaded_beside.load(server, seed.pipeline, changed=True)
    return True


@contextmanager
def add_beside(pipeline: Pipeline, head: str) -> Iterator[None]:
    """A new pipeline, with its recipe under this head; if that or what follows fails, nothing of it
    is left."""
    shared = Shared(state.settings_in_use(), pipeline)
    with own_pipelines.write_pipeline(pipeline, head), shared.forget_on_failure():
        try:
            bring_up_beside(pipeline)
            yield
        except BaseException:  # Ctrl-C too
            with suppress(UserError), lock.one_at_a_time():  # why it failed is what to tell
                loaded_beside.unload(pipeline, state.load())
            raise


def require_here(settings: Settings) -> None:
    """A repository that `lay_out_main` can fill."""
    layout_number.require_known(layout_number.here())
    if elsewhere := place.find(settings):
        raise UserError(
            f"a repository on {elsewhere.title} is filled by make only",
            "make up, or leave REPOSITORY empty",
        )


def lay_out_main(stack: Stack, settings: Settings) -> None:
    """For a server that is started by somebody else: by Compose, or by its container itself."""
    main = pipelines.main()
    shared = Shared(settings, main)
    seed = serving(main)
    if seed:
        recover(None, seed, shared)
    _recover_beside(None, settings)
    version = _build_or_keep(stack, settings, main, seed, shared)
    lay_out_alone(version, settings, stack.engine)
    loaded_beside.lay_out(settings, stack.engine)
    note_main()
    if version == seed:
        console.note(f"{version.describe()}: nothing to lay out")
        return
    shared.record(history.SERVES, version.number, "compose", version.what)
    shared.trim(settings.keep_versions, "compose")
    console.note(f"laid out: {version.describe()}; a running server loads it when it restarts")


def _furnish(pipeline: Pipeline) -> None:
    """From a recipe of the user's, which may come from another machine."""
    if pipeline.ensemble not in folders.model_folders():
        own_pipelines.write_models(pipeline.recipe, folders.own().models)


def require_lenders(pipeline: Pipeline, engine: Engine) -> None:
    """The pipelines whose models this one uses."""
    for model in pipeline.recipe.list_borrowed(engine):
        lender = next((each for each in pipelines.every() if model in each.recipe.members), None)
        if lender and not serving(lender):
            raise UserError(
                f"{pipeline.name} uses {model} of {lender.name}, which is not served here",
                f"serve that first: {brings_up(lender)}",
            )


def _keep_beside(before: str) -> None:
    """The main pipeline of the last `make up` is served on if another takes its place."""
    earlier = next((each for each in pipelines.others() if each.name == before), None)
    if earlier and serving(earlier):
        loaded_beside.remember(earlier.ensemble)
        ending = f"make unload TRITON_MODEL={earlier.ensemble}"
        console.note(f"{earlier.ensemble} is served beside {pipelines.main_name()}; {ending}")


def note_main() -> None:
    """For later commands, and for a server that is started without make."""
    pipelines.note_main()
    files.write(live.REPOSITORY / main_pipeline.FILE, pipelines.main().ensemble + "\n")


def _require_ports(stack: Stack, settings: Settings, command: str) -> None:
    """All but those that the server has that would be replaced."""
    known, its = state.load(), stack.find_held_ports()
    if known and flavour.stack_of(known).there():
        its |= {*known.settings_at_start.ports.values()}
    wanted = {name: port for name, port in settings.ports.items() if port not in its}
    ports.require_free(settings.bind, wanted, command, stack.flavour != "local")


def find_restored() -> State | None:
    """The server that runs, once it answers: its keeper, or the command that starts it, may be at
    it. None if there is none."""
    with lock.one_at_a_time():
        known = state.load()
        if known is None:
            return None
        stack = flavour.stack_of(known)
        if not stack.alive():
            return None
        reason = unhealthy_reason(stack, known, known.main)
        if reason and not _is_restored(stack, known):
            remedy = f"{state.name_start()} restarts it"
            raise UserError(f"the server does not answer ({reason})", remedy)
        return known


def _record(shared: Shared, version: Version, seed: Version | None, settings: Settings) -> None:
    if version != seed:
        shared.record(history.SERVES, version.number, "up", version.what)
        shared.trim(settings.keep_versions, "up")
    else:  # what serves was perhaps made live elsewhere, or before the door read it
        history.show(version.pipeline)
        shared.pull_history()
        shared.push_history()


def build_version(
    stack: Stack, settings: Settings, pipeline: Pipeline, seed: Version | None
) -> Version:
    """The requested version: the seed if all of it fits, or a new one."""
    if seed:
        own_network.require_as_said(pipeline, settings, seed.workspace)
    how = layout(settings, stack.engine)
    with archive.draft(pipeline, seed) as draft:
        engines.make(stack, settings, how, pipeline, draft)
        contents = model_folders.contents(pipeline, draft, how)
        version = archive.keep(draft, contents, settings.values, pipeline, seed)
        layout_number.write()
        return version


def _build_or_keep(
    stack: Stack, settings: Settings, pipeline: Pipeline, seed: Version | None, shared: Shared
) -> Version:
    """The requested version, or the seed if that was gone back to."""
    version = build_version(stack, settings, pipeline, seed)
    if seed and _went_back(seed, version):
        console.note(
            f"{seed.title} stays live, which was gone back to; "
            f"to leave it: make rollout{pipeline.option} VERSION={version.number}"
        )
        version = seed
    shared.push_version(version)
    return version


def _went_back(seed: Version, version: Version) -> bool:
    """Whether that version was left for the live one, and nothing else is asked for now."""
    both = version.own_settings.keys() & seed.own_settings.keys()
    same = all(version.own_settings[name] == seed.own_settings[name] for name in both)
    left = same and version.number in history.find_gone_back_from(history.read(seed.pipeline))
    return left and version.engine is seed.engine and seed.sound()


def _serve(
    stack: Stack, settings: Settings, version: Version, loads: dict[str, int], settled: ExitStack
) -> State:
    """Once another server ends for this one, nothing interrupts what is done in `settled`."""
    mark = fingerprint(stack, settings, loads)
    main = version.pipeline.ensemble
    wanted = State(stack.flavour, mark, settings.values, main=main, pipelines=loads)
    known = state.load()
    if known and known.fingerprint == wanted.fingerprint and stack.alive():
        if unhealthy_reason(stack, known, known.main) is None or _is_restored(stack, known):
            console.note(f"up already: {describe_server(known, version)}", version=version.number)
            return scale_if_wanted(stack, known, settings)
        console.note("the server is running but does not answer; restarting it")
    in_place = known is not None and known.flavour == stack.flavour and bool(stack.many)
    if known and not in_place and flavour.stack_of(known).alive():
        alone = stack.why_alone(known)
        if not alone:
            return _take_over(stack, settings, version, known, wanted, settled)
        began = time.monotonic()
        stack.rehearse()  # from a server's start to its end
        console.note(announce_silence(max(known.took or 0, time.monotonic() - began), alone))
    if known and not in_place:
        flavour.stack_of(known).stop()
    try:
        stack.start(wanted)
        what = "starting the server and waiting for its first answer"
        took = _wait(what, partial(_why_not, stack, wanted), settings.start_timeout, version)
    except BaseException as fault:  # Ctrl-C too: leave no server behind that may not work
        if not in_place:
            with interrupts.ignore_interrupts():
                if isinstance(fault, UserError):
                    _keep_log(stack)
                stack.stop()
        raise
    state.REFUSED.unlink(missing_ok=True)
    started = replace(state.load() or wanted, took=took)
    started.save()
    console.note(f"up: {describe_server(started, version)}", version=version.number)
    return started


def _keep_log(stack: Stack) -> None:
    """For `make logs`, when it is gone."""
    with suppress(UserError, OSError):  # as where its engine has ended
        if said := stack.log():
            files.write_private(state.REFUSED, said)


def scale_if_wanted(stack: Stack, known: State, settings: Settings) -> State:
    """Of several servers that run already, to as many as are asked for now."""
    if stack.many is None:
        return known
    wanted = settings.replicas
    if wanted in (None, known.settings_at_start.replicas):
        return known
    stack.many.scale(known, wanted)
    return state.load() or known


def _take_over(
    stack: Stack,
    settings: Settings,
    version: Version,
    known: State,
    wanted: State,
    settled: ExitStack,
) -> State:
    """The server from before answers until the new one does, and longer if that fails."""
    beside = [each.pipeline.ensemble for each in loaded_beside.read_remembered()]
    new = stack.start_beside(known, wanted, beside)
    try:
        what = "starting the new server beside the one that answers"
        took = _wait(what, partial(stack.why_unready, new), settings.start_timeout, version)
        settled.enter_context(interrupts.defer_interrupts("the server from before has ended"))
        new = replace(new, took=took)
        console.note("the new server answers; the one from before ends its requests")
        stack.take_over(known, new)
    except BaseException:
        if state.load() == known:
            with interrupts.ignore_interrupts():
                stack.withdraw(new)
        raise
    console.note(f"up: {describe_server(new, version)}", version=version.number)
    return new


def _lay_out_as_before(
    known: State | None, shared: Shared, settings: Settings, seed: Version
) -> bool:
    """If no other server has come to serve: the one from before may load its models again, and so
    may one that shares its repository, or is started without make."""
    now = state.load()
    if now not in (known, None):
        return False
    engine = flavour.stack_of(now).engine if now else seed.engine
    before = now.settings_at_start if now else settings
    lay_out_alone(seed, before.fill_from(seed.settings), engine)
    shared.push_live()
    return True


def announce_silence(seconds: float, why: str) -> str:
    long = f"about {seconds:.0f} s, as a start took here" if seconds >= 1 else "some seconds"
    return f"nobody is answered for {long}: the server ends before the new one starts ({why})"


def _is_restored(stack: Stack, known: State) -> bool:
    """Whether its keeper restores it."""
    with console.waiting("the server does not answer; waiting for its keeper") as waiting:
        while reason := unhealthy_reason(stack, known, known.main):
            waiting.show(reason)
            if waiting.seconds > KEEPERS_S:
                return False
            time.sleep(ASK_AGAIN_S)
    return True


def _why_not(stack: Stack, wanted: State) -> str | None:
    """Why it does not answer yet; Triton's readiness is true even while the pipeline does not
    work."""
    reason = unhealthy_reason(stack, wanted, wanted.main)
    if reason and not stack.alive():
        cause = explain_end(stack.log())
        raise UserError(f"the server stopped during its start: {cause}", stack.log_hint)
    return reason


def _wait(what: str, why_not: Callable[[], str | None], limit: float, version: Version) -> float:
    """Until it answers; returns the seconds that it took."""
    with console.waiting(what) as waiting:
        while reason := why_not():
            waiting.show(reason)
            if waiting.seconds > limit:
                raise UserError(
                    f"{version.served_as} did not answer within {limit:.0f} s ({reason})",
                    "see make logs; on a slow machine, raise START_TIMEOUT",
                )
            time.sleep(ASK_AGAIN_S)
        return round(waiting.seconds, 1)
