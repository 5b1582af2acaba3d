"""What is decided about versions, without a server."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from bundle_serving import agreement
from bundle_serving.agreement import Bound
from bundle_serving.pictures import Transform, to_pixels
from bundle_serving.process.cores import UNSEEN
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from bundle_serving.protocol.kserve import ModelConfig
from scripts.artefacts import samples
from scripts.artefacts.manifest import Manifest
from scripts.artefacts.workspace import Workspace
from scripts.base import files
from scripts.base.errors import UserError
from scripts.recipes import configs, pipelines
from scripts.recipes.layout import CPU
from scripts.repository import archive, history, layout_number, live
from scripts.repository.archive import Version
from scripts.repository.history import BEGINS, PUBLISHED, REMOVED, SERVES, STAYED, Event
from scripts.rollout import rollout, shadow
from scripts.rollout.preflight import (
    describe_anyway,
    require_room,
    require_same_shapes,
    require_sound,
    require_trained,
    require_writable,
)
from scripts.rollout.rollout import InPlace
from scripts.rollout.stream import Answer
from scripts.rollout.switch import Switch
from scripts.rollout.verdict import Agreement, Figures, is_undecided, objection
from scripts.server.own_network import describe_publish
from scripts.server.triton.control import pin_steps, serving_both
from scripts.settings import arguments
from scripts.settings.settings import DEFAULTS
from scripts.stacks import state
from scripts.steps import gate


def events(*happened: tuple[str, int, str]) -> list[Event]:
    return [Event("now", what, version, how) for what, version, how in happened]


FIRST = (SERVES, 1, "up")


@pytest.mark.parametrize(
    ("happened", "serving", "before"),
    [
        ([], None, None),
        ([FIRST], 1, None),
        ([FIRST, (PUBLISHED, 2, "publish"), (BEGINS, 2, "rollout")], 1, None),
        ([FIRST, (BEGINS, 2, "rollout"), (STAYED, 2, "rollout")], 1, None),
        ([FIRST, (SERVES, 2, "rollout")], 2, 1),
        ([FIRST, (SERVES, 2, "rollout"), (SERVES, 1, "rollback")], 1, None),
        ([FIRST, (SERVES, 2, "rollout"), (SERVES, 3, "up"), (SERVES, 2, "rollback")], 2, 1),
        ([FIRST, (SERVES, 2, "rollout"), (SERVES, 1, "rollout")], 1, 2),
        ([*((SERVES, n, "up") for n in (1, 2, 3, 2, 4)), (SERVES, 2, "rollback")], 2, 3),
        ([*((SERVES, n, "up") for n in (1, 2, 1, 3)), (SERVES, 1, "rollback")], 1, 2),
    ],
)
def test_who_serves_and_who_did_before(
    happened: list[tuple[str, int, str]], serving: int | None, before: int | None
) -> None:
    assert history.serving(events(*happened)) == serving
    assert history.find_previous(events(*happened)) == before


@pytest.mark.parametrize(
    ("happened", "waits"),
    [
        ([], None),
        ([FIRST, (PUBLISHED, 2, "publish")], 2),
        ([FIRST, (PUBLISHED, 2, "publish"), (SERVES, 2, "rollout")], None),
        ([FIRST, (SERVES, 2, "rollout"), (PUBLISHED, 1, "publish")], 1),
        ([FIRST, (PUBLISHED, 2, "publish"), (BEGINS, 2, "rollout"), (STAYED, 2, "rollout")], 2),
        ([FIRST, (PUBLISHED, 2, "publish"), (SERVES, 3, "up")], None),
    ],
)
def test_what_was_published_last_is_rolled_out(
    happened: list[tuple[str, int, str]], waits: int | None
) -> None:
    """Also where it is what an earlier version was."""
    assert history.waiting(events(*happened)) == waits


@pytest.mark.parametrize(
    ("happened", "left"),
    [
        ([], []),
        ([FIRST, (SERVES, 2, "rollout")], []),
        ([FIRST, (SERVES, 2, "rollout"), (SERVES, 1, "rollback")], [2]),
        ([FIRST, (SERVES, 2, "rollout"), (SERVES, 1, "rollout"), (PUBLISHED, 3, "publish")], [2]),
        ([(SERVES, n, "up") for n in (1, 2, 3, 2, 1)], [2, 3, 2]),
        ([(SERVES, n, "up") for n in (1, 2, 1, 2, 3)], []),
        ([(SERVES, n, "up") for n in (1, 2, 1, 3, 1)], [3]),
    ],
)
def test_who_went_back_has_left_some(happened: list[tuple[str, int, str]], left: list[int]) -> None:
    assert history.find_gone_back_from(events(*happened)) == left


def test_a_switch_that_did_not_end_was_cut_off() -> None:
    begun = events(FIRST, (BEGINS, 2, "rollout"))
    assert history.cut_off(begun) == begun[-1]
    assert history.cut_off([*begun, *events((PUBLISHED, 3, "publish"))]) == begun[-1]
    for end in (STAYED, SERVES):
        assert history.cut_off([*begun, *events((end, 2, "rollout"))]) is None
    assert history.cut_off(events(FIRST)) is None


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Event("", PUBLISHED, 2, "publish", "resnet18"), "version 2 published (publish): resnet18"),
        (Event("", SERVES, 2, "rollout"), "version 2 live (rollout)"),
        (Event("", SERVES, 1, "rollback"), "rolled back to version 1 (rollback)"),
        (Event("", STAYED, 2, "rollout", "p99 5"), "version 2 rejected (rollout): p99 5"),
        (
            Event("", STAYED, 2, "rollout", "interrupted"),
            "version 2 stopped (rollout): interrupted",
        ),
        (Event("", BEGINS, 2, "rollout"), "version 2 started (rollout)"),
        (Event("", REMOVED, 1, "prune"), "version 1 removed (prune)"),
    ],
)
def test_what_history_says_of_an_event(event: Event, line: str) -> None:
    assert history.describe(event) == line


@pytest.mark.parametrize("value", ["0", "100", "some", "12.5"])
def test_a_canary_gets_a_part_and_not_all(value: str) -> None:
    with pytest.raises(UserError, match=f"CANARY={value} must be between 1 and 99"):
        _ = arguments.load({"CANARY": value}).canary


def answers(version: int, ms: list[float], failed: int = 0) -> list[Answer]:
    return [
        *(Answer(version, number % 4, each, number % 4) for number, each in enumerate(ms)),
        *(Answer(version, 0, 1, None, "refused") for _ in range(failed)),
    ]


def test_what_speaks_against_a_version() -> None:
    old = Figures.from_answers(answers(1, [40.0] * 100))
    assert objection(old, Figures.from_answers(answers(2, [45.0] * 100)), 2) is None
    assert "1 of 101 requests failed" in str(
        objection(old, Figures.from_answers(answers(2, [40.0] * 100, failed=1)), 2)
    )
    slow = str(objection(old, Figures.from_answers(answers(2, [40.0] * 90 + [400.0] * 10)), 2))
    assert "p99 40 -> 400 ms" in slow and "MAX_P99_RATIO=2" in slow
    hurt = Figures.from_answers(answers(1, [40.0] * 100, failed=3))
    assert "the live version failed" in str(objection(hurt, old, 2))
    # A few milliseconds more are nothing, though they be three times as many.
    quick = Figures.from_answers(answers(1, [5.0] * 100))
    assert objection(quick, Figures.from_answers(answers(2, [15.0] * 100)), 2) is None


def test_few_answers_decide_nothing_but_that_it_is_far_too_slow() -> None:
    old = Figures.from_answers(answers(1, [40.0] * 100))
    for ms in ([], [40.0] * 10, [40.0] * 9 + [400.0]):
        assert is_undecided(old, Figures.from_answers(answers(2, ms)), 2)
    for ms in ([40.0] * 100, [400.0] * 10):
        assert not is_undecided(old, Figures.from_answers(answers(2, ms)), 2)
    assert not is_undecided(old, Figures.from_answers(answers(2, [40.0] * 10, failed=1)), 2)


def test_labels_in_another_order_are_noticed(tmp_path: Path) -> None:
    def make(name: str, text: str | None) -> Workspace:
        made = Workspace(tmp_path / name)
        made.onnx.mkdir(parents=True)
        if text is not None:
            (made.onnx / "labels.txt").write_text(text)
        return made

    before, turned = make("1", "cat\ndog\nfox\n"), make("2", "dog\ncat\nfox\n")
    assert rollout.has_reordered_labels(turned, before)
    for other in (before, make("3", "cat\ndog\nhen\n"), make("4", None)):
        assert not rollout.has_reordered_labels(other, before)


def test_labels_must_agree_on_enough_pictures() -> None:
    found = Agreement.from_gists(
        ["mug", "car", "cup", "fox", "mug"], ["mug", "cat", "pen", "hen", "bus"]
    )
    assert str(found).startswith("the same answer to 1 of 5 requests, with 99% certainty to ")
    assert found.enough(20) and not found.enough(21)
    assert Agreement.from_gists(["mug"] * 5, ["pen"] * 5).enough(0)
    assert not found.is_certain(20)
    alike, others = Agreement(8, 8), Agreement(0, 40)
    assert alike.is_certain(20) and alike.enough(20)
    assert others.is_certain(20) and not others.enough(20)
    assert (alike + others).questions == 48
    assert Figures.from_answers([]).p99 == float("inf")


def test_another_number_of_classes_is_not_rolled_out(here: Path) -> None:
    old, new = kept(None, "a network"), kept(None, "another")
    for version, classes in ((old, 8), (new, 3)):
        manifest = Manifest({"arch": "listener"}, False, {}, {"classes": classes}, {})
        files.write(version.workspace.onnx / "manifest.json", manifest.dump())
    require_same_shapes(old, old)
    with pytest.raises(UserError, match=r"version 2 has 3 classes, .* serves 8") as refused:
        require_same_shapes(old, new)
    assert "make up" in refused.value.remedy


def test_what_does_not_fit_what_runs_is_not_rolled_out(here: Path) -> None:
    old, new = kept(None, "a network"), kept(None, "another")
    network = new.member("resnet50_onnx") / "model.onnx"
    fewer = replace(new, models={"resnet50_onnx": 2}, hashes={"resnet50_onnx": {}})
    with pytest.raises(UserError, match="consists of other models"):
        require_sound(old, fewer, CPU)
    network.write_text("damaged")
    with pytest.raises(UserError, match="is not the file that was published"):
        require_sound(old, new, CPU)
    network.unlink()
    with pytest.raises(UserError, match=r"model\.onnx of resnet50_onnx .* is missing"):
        require_sound(old, new, CPU)


def test_untrained_weights_do_not_follow_trained_ones(here: Path) -> None:
    versions = kept(None, "a network"), kept(None, "another")
    for version, untrained in zip(versions, (False, True), strict=True):
        manifest = Manifest({"arch": "mobilenet_v2"}, untrained, {}, {}, {})
        files.write(version.workspace.onnx / "manifest.json", manifest.dump())
    trained, random = versions
    with pytest.raises(UserError, match="version 2 has untrained weights") as refused:
        require_trained(trained, random)
    assert refused.value.remedy.endswith(": make rollout VERSION=2 ANYWAY=1")
    other = replace(random, pipeline=replace(random.pipeline, name="birds"))
    assert describe_anyway(other).endswith(": make rollout MODEL=birds VERSION=2 ANYWAY=1")
    for old, new in ((trained, trained), (random, random), (random, trained)):
        require_trained(old, new)


def test_what_several_servers_do_instead_of_copies_is_of_the_same_pipeline(here: Path) -> None:
    live = kept(None, "a network")
    birds = replace(live, pipeline=replace(live.pipeline, name="birds"))
    running: Any = SimpleNamespace(version=birds, stack=SimpleNamespace(many=True))
    with pytest.raises(UserError) as refused:
        shadow.try_unseen(3, running, 10, 60, may_end_early=True)
    assert refused.value.remedy.endswith(": make rollout MODEL=birds VERSION=3 CANARY=10")


@pytest.mark.parametrize(
    "wrong", [agreement.Agreement(5, 5, 0.06), agreement.Agreement(5, 4, 0.01)]
)
def test_answers_that_are_not_pytorchs_are_refused_beside_the_live_version(
    wrong: agreement.Agreement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "ask_uncounted", lambda *_: iter([]))
    monkeypatch.setattr(gate, "find_served_bound", lambda *_: Bound(0.05))
    recipe = Mock(**{"judge.side_effect": [agreement.Agreement(5, 5, 0.01), wrong]})
    new = Mock(**{"pipeline.recipe": recipe})
    rollout._ask_golden(Mock(new=new))
    with pytest.raises(rollout.Refused, match="its answers differ from PyTorch's"):
        rollout._ask_golden(Mock(new=new))


@pytest.mark.parametrize(
    ("flavour", "more"), [("cpu", "up MEMORY=…"), ("gpu", "GPU_MEMORY=…"), ("local", "programs")]
)
def test_more_memory_comes_from_where_the_flavour_has_it(
    here: Path, flavour: str, more: str
) -> None:
    with pytest.raises(UserError) as refused:
        require_room(2 << 30, 1 << 30, kept(None, "a network"), flavour)
    assert more in refused.value.remedy


def test_a_new_version_is_made_by_a_setting_of_its_pipeline() -> None:
    for pipeline in pipelines.every():
        call = describe_publish(pipeline, "my birds.onnx")
        assert f"make publish{pipeline.option}" in call
        if own := pipeline.recipe.settings:
            (word,) = {each for each in own if f" {each}='my birds.onnx'" in call}
            assert word == "WEIGHTS" or "WEIGHTS" not in own
        else:
            assert "=my" not in call


def test_pictures_to_compare_on_are_many_and_varied() -> None:
    drawn = samples.make_varied()
    assert len({*drawn}) == samples.MOST_PICTURES
    assert drawn == samples.make_varied()  # a second try is judged by the same
    assert all(to_pixels(each, Transform(232, 224)).any() for each in drawn)


def test_an_ensemble_and_its_members_fixed_to_versions() -> None:
    ensemble = configs.read_model(PIPELINE)
    assert pipelines.main().recipe.set_engine(ensemble, CPU)
    models = {"preprocessing": 3, "resnet50_onnx": 7, "postprocessing": 1}
    fixed = pin_steps(ensemble, models)
    assert [step.model_version for step in fixed.ensemble_scheduling.step] == [3, 7, 1]
    assert {step.model_version for step in ensemble.ensemble_scheduling.step} == {-1}
    member = configs.read_model("resnet50_onnx")
    assert list(serving_both(member, 6, 7).version_policy.specific.versions) == [6, 7]
    assert UNSEEN not in serving_both(member, 6, 7).parameters
    assert serving_both(member, 6, 7, unseen=7).parameters[UNSEEN].string_value == "7"


# The archive, and the repository that Triton reads.


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    monkeypatch.setattr(live, "REPOSITORY", tmp_path / "live")
    return tmp_path


def kept(seed: Version | None, network: str, program: str = "first") -> Version:
    contents = {
        "preprocessing": {"model.py": program},
        "postprocessing": {"model.py": "first"},
        "resnet50_onnx": {"model.onnx": network},
    }
    with archive.draft(pipelines.main(), seed) as draft:
        return archive.keep(draft, contents, DEFAULTS, pipelines.main(), seed)


def test_what_is_published_twice_is_listed_once(here: Path) -> None:
    for what, version in [(SERVES, 1), (PUBLISHED, 2), (PUBLISHED, 2), (PUBLISHED, 3)]:
        history.add(pipelines.main(), what, version, "")
    history.add(pipelines.main(), PUBLISHED, 2, "")  # which is rolled out now, and not 3
    assert [event.version for event in history.read(pipelines.main())] == [1, 2, 3, 2]


def test_a_version_is_numbered_once_and_members_keep_their_numbers(here: Path) -> None:
    first = kept(None, "a network")
    assert first.number == 1 and set(first.models.values()) == {1}
    assert kept(first, "a network") == first
    second = kept(first, "another")
    assert second.models == {"preprocessing": 1, "postprocessing": 1, "resnet50_onnx": 2}
    third = kept(second, "another", "changed")
    assert third.models == {"preprocessing": 3, "postprocessing": 1, "resnet50_onnx": 2}
    # An earlier version that is requested again is reused, unless its files are damaged.
    assert kept(third, "a network") == first == archive.load(pipelines.main(), 1)
    (first.member("resnet50_onnx") / "model.onnx").write_text("damaged")
    assert kept(third, "a network").number == 4


@pytest.mark.parametrize(
    "changed",
    [
        {"models": {"../../secret": 1}, "hashes": {}},
        {"models": {"network": 1, "../../secret": 1}, "hashes": {"network": {}}},
        {"models": {"a/b": 1}, "hashes": {"a/b": {}}},
        {"models": {}, "hashes": {"network": {}}},
    ],
)
def test_a_record_names_the_models_that_it_has_hashes_of(
    here: Path, changed: dict[str, object]
) -> None:
    """It may come from elsewhere, and folders of these names are removed."""
    version = kept(None, "a network")
    files.write(version.folder / archive.RECORD, json.dumps(version.record | changed))
    with pytest.raises(UserError, match="it names something else than models"):
        archive.load(pipelines.main(), 1)


def test_what_was_removed_or_spoilt_is_mended_once_it_is_made_again(here: Path) -> None:
    seed = kept(None, "a network")
    network = seed.member("resnet50_onnx") / "model.onnx"
    for spoil in (network.unlink, lambda: network.write_text("damaged")):
        spoil()
        assert kept(seed, "a network") == seed and seed.sound()


def test_a_draft_that_fails_leaves_nothing(here: Path) -> None:
    with pytest.raises(KeyboardInterrupt), archive.draft(pipelines.main(), None) as draft:
        files.write(draft.onnx / "model.onnx", "half")
        raise KeyboardInterrupt
    assert archive.numbers(pipelines.main()) == [] and list((here / "versions").iterdir()) == []
    with pytest.raises(UserError, match="there is no version 7"):
        archive.load(pipelines.main(), 7)
    with pytest.raises(UserError) as refused:
        archive.load(replace(pipelines.main(), name="birds"), 7)
    assert refused.value.remedy == "see them: make history MODEL=birds"


def test_what_a_killed_build_has_left_is_in_no_version(here: Path) -> None:
    files.write(here / "versions" / ".draft" / "onnx" / "model.onnx", "half")
    with archive.draft(pipelines.main(), None) as draft:
        assert not [*draft.folder.iterdir()]


def test_of_an_earlier_version_all_is_reused_but_its_models(here: Path) -> None:
    """Of which the new one may have fewer."""
    pipeline, seed = pipelines.main(), kept(None, "a network")
    files.write(seed.folder / "onnx" / "model.onnx", "exported")
    with archive.draft(pipeline, seed) as draft:
        assert (draft.onnx / "model.onnx").samefile(seed.folder / "onnx" / "model.onnx")
        contents = {"resnet50_onnx": {"model.onnx": "another"}}
        version = archive.keep(draft, contents, DEFAULTS, pipeline, seed)
    assert version.hashes.keys() == version.models.keys() == {"resnet50_onnx"}


@pytest.mark.usefixtures("umask_077")
def test_containers_can_read_versions_and_what_is_live_whatever_the_umask(here: Path) -> None:
    live.place(version := kept(None, "a network"), live.REPOSITORY)
    for top in (version.folder, live.REPOSITORY):
        for path in (top, *top.rglob("*")):
            wanted = 0o555 if path.is_dir() else 0o444
            assert path.stat().st_mode & wanted == wanted, path


def test_what_is_laid_out_again_is_not_touched(here: Path) -> None:
    """Triton would load it anew: it looks at each file, and at those that Python compiles."""

    def look() -> dict[Path, tuple[int, int]]:
        laid_out = [path for path in live.REPOSITORY.rglob("*") if path.is_file()]
        return {each: (each.stat().st_ino, each.stat().st_ctime_ns) for each in laid_out}

    version = kept(None, "a network", "x = 1")
    live.place(version, live.REPOSITORY)
    before = look()
    assert any(path.match("preprocessing/1/__pycache__/*.pyc") for path in before)
    live.place(version, live.REPOSITORY)
    assert look() == before


def test_a_model_is_called_by_its_name_and_the_network_that_it_serves(here: Path) -> None:
    manifest = Manifest({"arch": "mobilenet_v2"}, False, {}, {}, {})
    for version in (1, 2):
        files.write(here / f"live/resnet50_onnx/{version}/manifest.json", manifest.dump())
    assert live.describe_network("resnet50_onnx") == "resnet50_onnx, serving mobilenet_v2"
    assert live.describe_network("resnet50_onnx", "1") == "resnet50_onnx, serving mobilenet_v2"
    assert (
        live.describe_network("postprocessing", "1")
        == live.describe_network("postprocessing")
        == "postprocessing"
    )
    made = kept(None, "a network")
    files.write(made.workspace.onnx / "manifest.json", manifest.dump())
    assert made.served_as == f"{PIPELINE}, serving mobilenet_v2"


def live_numbers(here: Path, model: str) -> list[str]:
    return sorted(path.name for path in (here / "live" / model).glob("[0-9]*"))


def test_a_rollout_does_not_begin_beside_what_root_has_laid_out(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kept(None, "a network")
    live.place(first, live.REPOSITORY)
    monkeypatch.setattr(state, "RUN", here)
    require_writable(first)
    folder = live.REPOSITORY / "resnet50_onnx" / "1"
    monkeypatch.setattr(os, "access", lambda path, _: path != folder)  # root is refused nothing
    with pytest.raises(PermissionError) as refused:
        require_writable(first)
    assert str(folder) in str(refused.value)


def test_a_rollout_lays_out_again_what_a_killed_make_up_has_removed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kept(None, "a network")
    second = kept(first, "another")
    live.place(second, live.REPOSITORY)
    live.leave_only(second)
    switch = Switch(MagicMock(version=first), MagicMock(new=second))
    switch.control = MagicMock(**{"load.side_effect": KeyboardInterrupt})
    monkeypatch.setattr(switch, "_config", lambda _: ModelConfig())
    with pytest.raises(KeyboardInterrupt):
        switch.load_beside()
    assert live_numbers(here, "resnet50_onnx") == ["1", "2"]


def test_the_way_back_removes_nothing_that_is_loading(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton would wait for it forever."""
    first = kept(None, "a network")
    second = kept(first, "another")
    live.place(second, live.REPOSITORY)
    there, network = list[str](), "resnet50_onnx"
    switch = Switch(MagicMock(version=first), MagicMock(new=second))
    switch.control = MagicMock(wait_for=lambda _: there.extend(live_numbers(here, network)))
    monkeypatch.setattr(switch, "_config", lambda _: ModelConfig())
    monkeypatch.setattr("scripts.server.recover.model_folders", MagicMock())
    switch.back()
    assert there == ["1", "2"] and live_numbers(here, network) == ["1"]


@pytest.fixture
def beside(here: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Version 2 beside version 1, on a server that ends with it."""
    monkeypatch.setattr(shadow, "lock", MagicMock())
    monkeypatch.setattr("scripts.server.recover.model_folders", MagicMock())
    first = kept(None, "a network")
    second = kept(first, "another")
    live.place(first, live.REPOSITORY)
    found = InPlace(MagicMock(version=first), MagicMock(new=second))
    gone = {f"{name}.side_effect": UserError("it has ended", "") for name in ("wait_for", "unload")}
    found.control = MagicMock(**gone)
    monkeypatch.setattr(found, "_config", lambda _: ModelConfig())
    monkeypatch.setattr(found, "share_with_clients", Mock())
    return found


def test_a_server_that_ends_with_a_version_beside_comes_back_with_the_live_one_alone(
    here: Path, beside: Any
) -> None:
    """Triton takes the newest that is there."""
    with (
        pytest.raises(UserError, match="it has ended"),
        shadow.tried_beside(beside, history.REPLAY, str),
    ):
        assert live_numbers(here, "resnet50_onnx") == ["1", "2"]
    assert live_numbers(here, "resnet50_onnx") == ["1"]
    assert beside.shared.push_live.call_count == 2
    # The next command sees to the server.
    beside.shared.begin.assert_called_once_with(2, history.REPLAY)


def test_what_was_tried_beside_is_in_the_history(here: Path, beside: Any) -> None:
    beside.control = MagicMock()
    beside.control.in_use.return_value = []
    with shadow.tried_beside(beside, history.REPLAY, lambda: "seen"):
        pass
    with pytest.raises(KeyboardInterrupt), shadow.tried_beside(beside, history.REPLAY, str):
        raise KeyboardInterrupt
    stayed = [each.args for each in beside.shared.record.mock_calls if each.args[0] == STAYED]
    assert stayed == [(STAYED, 2, "replay", "seen"), (STAYED, 2, "replay", "interrupted")]
    said = [
        history.describe(Event("", what, number, how, note)) for what, number, how, note in stayed
    ]
    assert said == [
        "version 2 tried unseen (replay): seen",
        "version 2 stopped (replay): interrupted",
    ]


def test_a_live_version_that_does_not_answer_ends_the_try(
    beside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.rollout.switch.reason_not_to_trust", lambda *_: "refused")
    beside.require_well()  # not at once
    monkeypatch.setattr("scripts.rollout.switch.WELL_S", 0.0)
    with pytest.raises(UserError, match="does not answer"):
        beside.require_well()


def test_a_version_on_trial_says_which_it_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers are told of by that; in the history it is once the trial is over."""
    first = kept(None, "a network")
    switch = Switch(MagicMock(version=first), MagicMock(new=kept(first, "another")))
    switch.control = MagicMock()
    monkeypatch.setattr(switch, "_config", lambda _: ModelConfig())
    monkeypatch.setattr("scripts.rollout.switch.model_folders", MagicMock())
    switch.turn()
    name, config = switch.control.load.call_args.args
    assert (name, config.parameters["version"].string_value) == (PIPELINE, "2")


def test_two_versions_are_live_during_a_switch_and_one_after_it(here: Path) -> None:
    first = kept(None, "a network")
    second = kept(first, "another", "changed")
    live.place(first, live.REPOSITORY)
    killed = here / "live" / "resnet50_onnx" / "1" / ".model.onnx.12.tmp"  # while it copied
    killed.touch()
    live.place(second, live.REPOSITORY)
    assert not killed.exists()
    assert live_numbers(here, "resnet50_onnx") == ["1", "2"]
    live.leave_only(second)
    assert live_numbers(here, "resnet50_onnx") == ["2"]
    assert live_numbers(here, "preprocessing") == ["2"]
    assert live_numbers(here, "postprocessing") == ["1"]  # of both
    live.place(first, live.REPOSITORY)
    live.leave_only(first)
    assert live_numbers(here, "resnet50_onnx") == live_numbers(here, "preprocessing") == ["1"]


def test_what_an_older_bundle_would_meet_has_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of layout 1 take whatever lies in the live repository for a model's folder."""
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    monkeypatch.setattr(live, "REPOSITORY", tmp_path / "live")
    history.add(pipelines.main(), SERVES, 1, "up")
    beside = {path.name for path in live.REPOSITORY.iterdir() if path.is_file()}
    assert (layout_number.NUMBER, beside) == (2, {"history.json"})
