"""What a `make up` that does not come to its end leaves: the server from before, and its version
laid out, which it would load again."""

import errno
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock, call

import pytest

from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU
from scripts.repository import history, model_folders, own_pipelines, place
from scripts.repository.shared import Shared
from scripts.rollout import rollout
from scripts.server import loaded_beside, recover, up
from scripts.settings import settings
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import containers, flavour, state
from scripts.stacks.containers import DockerStack
from scripts.stacks.state import State

KNOWN = State("local", "as before", {})
SETTINGS = Settings(DEFAULTS)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[State | None]:
    """What is noted of the server: the last of these."""
    found: list[State | None] = [KNOWN]
    monkeypatch.setattr(state, "load", lambda: found[-1])
    return found


def make_version(number: int) -> Any:
    pipeline = SimpleNamespace(ensemble="birds", candidate="", mark="", recipe=MagicMock())
    return SimpleNamespace(
        number=number, pipeline=pipeline, serving="birds", title="", settings={}, workspace=None
    )


def list_recorded(shared: Mock) -> list[str]:
    noted = (each for each in shared.method_calls if each[0] in ("begin", "record"))
    return [args[0] if name == "record" else name for name, args, _ in noted]


@pytest.fixture
def live(noted: list[State | None], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions that were laid out, one after the other: of a server that runs with the first,
    the second is wanted."""
    laid_out: list[int] = []
    stack = MagicMock(many=None, engine=CPU)
    for name, value in {
        "lock": SimpleNamespace(one_at_a_time=nullcontext),
        "flavour": MagicMock(
            choose=lambda _: ("local", ""), stack=lambda *_: stack, stack_of=lambda _: stack
        ),
        "serving": lambda _: make_version(1),
        "build_version": lambda *_: make_version(2),
        "lay_out_alone": lambda version, *_: laid_out.append(version.number),
        "fill_from_version": lambda settings, *_: settings,
        "Shared": MagicMock(),
    }.items():
        monkeypatch.setattr(up, name, value)
    for name in ("_require_ports", "_furnish", "_keep_beside", "_went_back", "_serve", "_record"):
        monkeypatch.setattr(up, name, MagicMock(return_value=False))
    for name in ("pipelines", "exposure", "loaded_beside", "live", "recover", "require_lenders"):
        monkeypatch.setattr(up, name, MagicMock())
    monkeypatch.setattr(place, "find", lambda _: None)
    return laid_out


@pytest.mark.parametrize("fault", [KeyboardInterrupt, UserError("S3 does not answer", "")])
def test_without_another_server_it_is_laid_out_as_before(
    live: list[int], monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    shared = MagicMock(push_all=MagicMock(side_effect=fault))
    monkeypatch.setattr(up, "Shared", lambda *_: shared)
    with pytest.raises((KeyboardInterrupt, UserError)):
        up.bring_up(SETTINGS)
    assert live == [2, 1] and shared.push_live.call_count == 1
    why = "interrupted" if fault is KeyboardInterrupt else "S3 does not answer"
    shared.begin.assert_called_once_with(2, "up")
    assert shared.record.mock_calls == [call("stayed", 2, "up", why)]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, UserError("it does not load", "")])
def test_beside_the_main_one_too(
    live: list[int], monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    """And only once nothing of the new version is loading, whose folders go; or the server has
    ended with it, whose keeper starts it again."""
    done = list[str]()

    def wait_for(*_: object) -> None:
        done.append(f"waited at {live}")
        if isinstance(fault, UserError):
            raise UserError("the server does not answer", "")

    beside = MagicMock(load=Mock(side_effect=[fault, None]), wait_for=wait_for)
    monkeypatch.setattr(up, "loaded_beside", beside)
    monkeypatch.setattr(up, "hash_layout", lambda _: "")
    monkeypatch.setattr(up, "settings_of", lambda *_: SETTINGS)
    recovered = MagicMock(), (shared := MagicMock()), MagicMock(number=1)
    monkeypatch.setattr(up, "find_recovered", lambda _: recovered)
    with pytest.raises((KeyboardInterrupt, UserError)):
        up.bring_up_beside(MagicMock())
    assert done == ["waited at [2]"] and live == [2, 1] and beside.load.call_count == 2
    assert list_recorded(shared) == ["begin", "stayed"]
    beside.load.side_effect = [KeyboardInterrupt, UserError("the server does not answer", "")]
    with pytest.raises(KeyboardInterrupt):
        up.bring_up_beside(MagicMock())
    # The next command sees to it.
    assert list_recorded(shared) == ["begin", "stayed", "begin"]


def test_several_servers_have_gone_back_by_themselves(
    live: list[int], noted: list[State | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    many, shared = MagicMock(load=Mock(side_effect=KeyboardInterrupt)), MagicMock()
    stack = MagicMock(many=many)
    monkeypatch.setattr(up, "flavour", MagicMock(stack=lambda *_: stack, stack_of=lambda _: stack))
    monkeypatch.setattr(up, "hash_layout", lambda _: "")
    monkeypatch.setattr(up, "settings_of", lambda *_: SETTINGS)
    recovered = KNOWN, shared, make_version(1)
    monkeypatch.setattr(up, "find_recovered", lambda _: recovered)
    with pytest.raises(KeyboardInterrupt):
        up.bring_up_beside(MagicMock())
    assert live == [2, 1] and many.load.call_count == 1
    assert list_recorded(shared) == ["begin", "stayed"]
    noted[:] = [replace(KNOWN, fingerprint="with the new version")]  # or have come to serve it
    with pytest.raises(KeyboardInterrupt):
        up.bring_up_beside(MagicMock())
    assert live == [2, 1, 2]
    assert list_recorded(shared) == ["begin", "stayed", "begin"]


def test_after_a_server_that_had_to_end_first_it_is_laid_out_as_before(
    live: list[int], noted: list[State | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What shares its repository, or is started without make, may load it."""

    def serve(*_: object) -> State:
        noted[:] = [None]
        raise UserError("the new server does not start", "")

    monkeypatch.setattr(up, "_serve", serve)
    monkeypatch.setattr(
        up, "serving", lambda _: SimpleNamespace(**vars(make_version(1)), engine=CPU)
    )
    with pytest.raises(UserError, match="does not start"):
        up.bring_up(SETTINGS)
    assert live == [2, 1]


@pytest.mark.parametrize("many", [None, MagicMock()])
def test_what_is_laid_out_beside_the_main_one_is_what_servers_are_told(
    live: list[int], monkeypatch: pytest.MonkeyPatch, many: Any
) -> None:
    """Of a repository on S3, too, one server is told what has changed, and several go without what
    failed."""
    stack, beside = MagicMock(many=many), MagicMock()
    monkeypatch.setattr(place, "find", MagicMock())
    monkeypatch.setattr(up, "flavour", MagicMock(choose=lambda _: ("", ""), stack=lambda *_: stack))
    monkeypatch.setattr(up, "loaded_beside", beside)
    monkeypatch.setattr(up, "_serve", MagicMock())
    up.bring_up(SETTINGS)
    told = (many.list_pipelines if many else beside.load_again).call_args.args[-1]
    assert told is beside.lay_out.return_value


@pytest.mark.parametrize("is_running", [False, True])
def test_what_was_killed_beside_the_main_one_is_undone(
    monkeypatch: pytest.MonkeyPatch, is_running: bool
) -> None:
    """Else both versions would be laid out, and the next server have the newer."""
    done, version = list[str](), make_version(1)
    stack = MagicMock(alive=lambda: is_running)
    monkeypatch.setattr(flavour, "stack_of", lambda _: stack)
    monkeypatch.setattr(loaded_beside, "read_remembered", lambda: [version])
    monkeypatch.setattr(up, "Shared", MagicMock())
    monkeypatch.setattr(up, "recover", lambda server, *_: done.append(f"recovered {bool(server)}"))
    assert up._recover_beside(KNOWN, SETTINGS) == [version.pipeline.ensemble]  # it was not
    assert done == [f"recovered {is_running}"]


@pytest.mark.parametrize(
    "command",
    [
        lambda: up.bring_up(SETTINGS),
        lambda: up.bring_up_beside(MagicMock()),
        lambda: rollout.find_running_server(MagicMock()),
    ],
)
def test_what_a_killed_hand_over_has_left_ends_first(
    live: list[int], monkeypatch: pytest.MonkeyPatch, command: Callable[[], object]
) -> None:
    """A local one would open its door, too, and answer with another version."""
    stack = MagicMock(many=None, **{"end_strays.side_effect": KeyboardInterrupt})
    for home in ("server.up", "server.recover"):
        monkeypatch.setattr(f"scripts.{home}.flavour.stack_of", lambda _: stack)
    with pytest.raises(KeyboardInterrupt):
        command()
    stack.end_strays.assert_called_once_with(KNOWN)


def test_what_another_server_has_stays_laid_out(
    live: list[int], noted: list[State | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what comes afterwards fails."""

    def serve(*_: object) -> None:
        noted.append(replace(KNOWN, fingerprint="new"))
        raise UserError("the server from before does not end", "")

    monkeypatch.setattr(up, "_serve", serve)
    shared = MagicMock()
    monkeypatch.setattr(up, "Shared", lambda *_: shared)
    with pytest.raises(UserError, match="does not end"):
        up.bring_up(SETTINGS)
    assert live == [2]
    assert list_recorded(shared) == ["begin"]  # until the next command


@pytest.mark.parametrize("is_of_another", [False, True])
def test_a_make_up_that_was_killed_is_undone(
    monkeypatch: pytest.MonkeyPatch, is_of_another: bool
) -> None:
    """Its version is laid out, and perhaps what serves: what is live is loaded by its name, with
    its own config. What is noted of a server that was started with the other one fits no `make up`
    any more, which would find it up already."""
    done, saved = list[str](), list[State]()
    begun = history.Event("", history.BEGINS, 2, "up")
    version, shared = make_version(1), MagicMock()
    control = MagicMock(in_use=lambda _, models: [*models])
    control.wait_for = lambda _: done.append("waited")
    control.load = lambda model, config: done.append(f"{model}: {config}")
    version.models = {"network": 1}
    monkeypatch.setattr(recover, "Control", lambda *_: control)
    monkeypatch.setattr(flavour, "stack_of", lambda _: MagicMock(many=None))
    monkeypatch.setattr(history, "read", lambda _: [begun])
    monkeypatch.setattr(State, "save", lambda server: saved.append(server))
    monkeypatch.setattr(
        recover,
        "layouts",
        SimpleNamespace(
            layout=lambda *_: "as before",
            lay_out=lambda version, how, _: done.append(f"{version.number} laid out {how}"),
            fingerprint=lambda *_: "another" if is_of_another else KNOWN.fingerprint,
        ),
    )
    monkeypatch.setattr(recover, "leave_only", lambda *_: [])
    labels = Mock(return_value=["alike"])
    monkeypatch.setattr(model_folders, "write_labels", labels)
    read = lambda _, model, engine: f"config of {model}"  # noqa: E731
    monkeypatch.setattr(model_folders, "config_in_use", read)
    assert recover.recover(KNOWN, version, shared)
    assert done == [
        "1 laid out as before",
        "waited",
        *(f"{model}: config of {model}" for model in ("network", "alike", "birds")),
    ]
    assert saved == [replace(KNOWN, fingerprint="")] * is_of_another
    shared.record.assert_called_once_with(history.STAYED, 2, "up", history.CUT_OFF)


def test_a_second_ctrl_c_interrupts_no_way_back(
    noted: list[State | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python would raise it in the middle of any of them."""
    done = list[str]()

    def interrupt(what: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        done.append(what)

    stack: Any = MagicMock(many=None)
    stack.withdraw = lambda _: interrupt("withdrawn")
    stack.stop = lambda: interrupt("stopped")
    monkeypatch.setattr(up, "flavour", SimpleNamespace(stack_of=lambda _: stack))
    monkeypatch.setattr(up, "lay_out_alone", lambda *_: interrupt("laid out"))
    monkeypatch.setattr(up, "_wait", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(loaded_beside, "read_remembered", list)
    version, shared = make_version(2), MagicMock()
    before = partial(up._lay_out_as_before, KNOWN, shared, SETTINGS)
    with (
        pytest.raises(KeyboardInterrupt),
        up._begun(version, make_version(1), shared, before),
        ExitStack() as settled,
    ):
        up._take_over(stack, SETTINGS, version, KNOWN, KNOWN, settled)
    noted[:] = [None]
    monkeypatch.setattr(up, "fingerprint", lambda *_: "new")
    with pytest.raises(KeyboardInterrupt), ExitStack() as settled:
        up._serve(stack, SETTINGS, version, {}, settled)
    assert done == ["withdrawn", "laid out", "stopped"]


@pytest.mark.parametrize("has_taken_over", [False, True])
def test_a_server_that_cannot_take_over_is_withdrawn(
    noted: list[State | None], monkeypatch: pytest.MonkeyPatch, has_taken_over: bool
) -> None:
    new, withdrawn = replace(KNOWN, fingerprint="new"), list[State]()

    def take_over(_: State, new: State) -> None:
        if has_taken_over:
            noted.append(new)
        raise UserError("the new server does not get the ports", "")

    stack: Any = MagicMock(take_over=take_over, withdraw=withdrawn.append)
    stack.start_beside.return_value = new
    monkeypatch.setattr(loaded_beside, "read_remembered", list)
    monkeypatch.setattr(up, "_wait", lambda *_: 1.5)
    with pytest.raises(UserError, match="does not get the ports"), ExitStack() as settled:
        up._take_over(stack, SETTINGS, make_version(2), KNOWN, new, settled)
    assert withdrawn == ([] if has_taken_over else [replace(new, took=1.5)])


def test_a_container_that_may_have_the_ports_all_the_same_loses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the engine, or the disk, fails right then: who has them would not be withdrawn, but the
    one from before."""
    stack, execute = DockerStack(SETTINGS), Mock(return_value=(0, ""))
    stack.compose = MagicMock(**{"find.return_value": "old", "find_beside.return_value": ["new"]})
    monkeypatch.setattr(containers, "execute", execute)
    new: Any = MagicMock(**{"save.side_effect": OSError(errno.ENOSPC, "")})
    with pytest.raises(OSError):
        stack.take_over(KNOWN, new)
    assert [each.args[0] for each in execute.mock_calls] == ["new", "old"]


def test_a_container_that_has_ended_takes_over_nothing() -> None:
    stack, there = DockerStack(SETTINGS), MagicMock()
    there.find_beside.return_value, there.find.return_value = [], None
    stack.compose = there
    with pytest.raises(UserError, match=r"does not get the ports \(it is gone\)"):
        stack.take_over(KNOWN, KNOWN)


@pytest.mark.parametrize(("at", "then"), [(1, "go_back"), (2, "load")])
def test_servers_that_had_all_been_replaced_get_the_live_version_back(
    monkeypatch: pytest.MonkeyPatch, at: int, then: str
) -> None:
    """By a rollout that was killed before it recorded that."""
    many, shared, version = MagicMock(), MagicMock(), make_version(1)
    begun = history.Event("", history.BEGINS, 2, "rollout")
    monkeypatch.setattr(history, "read", lambda _: [begun])
    laid_out = Mock()
    monkeypatch.setattr("scripts.server.layouts.lay_out_alone", laid_out)
    monkeypatch.setattr(flavour, "stack_of", lambda _: MagicMock(many=many))
    assert recover.recover(replace(KNOWN, pipelines={"birds": at}), version, shared)
    assert [each[0] for each in many.method_calls] == [then] and laid_out.call_count == 1
    shared.record.assert_called_once_with(history.STAYED, 2, "rollout", history.CUT_OFF)


def test_a_switch_ends_with_one_version_and_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ensemble last: until then it asks what it did."""
    control = MagicMock(in_use=lambda _, models: [*models])
    pipeline = pipelines.Pipeline("birds", MagicMock(ensemble="birds"))
    version: Any = SimpleNamespace(pipeline=pipeline)
    monkeypatch.setattr(recover, "leave_only", lambda *_: ["alike"])
    monkeypatch.setattr(
        "scripts.repository.model_folders.config_in_use", lambda _, model, engine: f"of {model}"
    )
    recover.serve_alone(control, CPU, version, MagicMock(), ["network"])
    control.assert_has_calls([
        call.unload("birds_candidate"),
        *(call.load(each, f"of {each}") for each in ("network", "alike", "birds")),
    ])  # fmt: skip


@pytest.mark.parametrize("is_there", [False, True])
def test_nothing_of_what_failed_is_left_in_another_place(
    live: list[int], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Else another pipeline of its name would begin with its versions. But what was there before
    stays: another machine has put it there."""
    done, pipeline = list[str](), pipelines.Pipeline("birds", MagicMock())
    there = SimpleNamespace(list=lambda name: [name] * is_there, remove=done.append)
    monkeypatch.setattr(place, "open_folder", lambda _: SimpleNamespace(archive=there))
    monkeypatch.setattr(up, "Shared", Shared)
    monkeypatch.setattr(up, "bring_up_beside", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(own_pipelines, "write_pipeline", lambda *_: nullcontext())
    unload = SimpleNamespace(unload=lambda *_: done.append("unloaded"))
    monkeypatch.setattr(up, "loaded_beside", unload)
    with pytest.raises(KeyboardInterrupt), up.add_beside(pipeline, ""):
        pass
    assert done == (["unloaded"] if is_there else ["unloaded", "birds/"])


def test_several_servers_that_had_to_recover_are_laid_out_as_before(
    live: list[int], noted: list[State | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which changes what is noted of them."""

    def recover_them(*_: object) -> bool:
        noted.append(replace(KNOWN, pipelines={"birds": 1}))
        return True

    monkeypatch.setattr(up, "recover", recover_them)
    monkeypatch.setattr(up, "_serve", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        up.bring_up(SETTINGS)
    assert live == [2, 1]


def test_a_flavour_need_not_say_how_it_starts(
    noted: list[State | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the user's may be of an earlier release."""
    monkeypatch.setattr(settings, "FLAVOURS", {"nomad": SimpleNamespace()})
    for flavour_name in ("local", "nomad"):
        noted.append(replace(KNOWN, flavour=flavour_name))
        assert state.name_start() == "make up"
