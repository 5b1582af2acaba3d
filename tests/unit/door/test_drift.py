"""The distance of a version's answers from its first ones."""

import asyncio
import json
import os
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from bundle_door.answers import Refused
from bundle_door.served import Served, live_version
from bundle_door.triton import Triton
from bundle_door.watching.drift import (
    ANSWERS,
    MOST_KEPT,
    NAME,
    NAMED,
    References,
    stability_index,
)
from bundle_door.watching.measures import text
from bundle_door.watching.observed import Observed
from bundle_serving.identity import identity
from bundle_serving.protocol.kserve import pb

STEP = ("m", "1")


def answered(observed: Observed, classes: int, share: float, network: str = "one") -> None:
    for number in range(ANSWERS):
        observed.drift.observe(number % classes, share, STEP, network)


def test_the_same_shares_are_no_distance() -> None:
    assert stability_index({"a": 500, "b": 500}, {"a": 500, "b": 500}) == 0


def test_the_index_is_the_usual_one() -> None:
    # (0.8 - 0.5) ln(0.8 / 0.5) + (0.2 - 0.5) ln(0.2 / 0.5)
    found = stability_index({"a": 50_000, "b": 50_000}, {"a": 80_000, "b": 20_000})
    assert found == pytest.approx(0.4159, abs=1e-3)


def test_nothing_is_said_before_the_reference_and_the_present_are_whole() -> None:
    observed = Observed()
    observed.drift.observe(1, 0.5, STEP)
    assert not observed.classes.values
    answered(observed, 10, 0.5)
    assert "bundle_answer_drift_index{" not in text([observed.drift])


def test_a_shift_shows_and_classes_are_bounded() -> None:
    observed = Observed()
    answered(observed, 200, 0.95)
    answered(observed, 200, 0.95)
    assert set(observed.drift.versions[STEP].distances().values()) == {0}
    answered(observed, 1, 0.35)
    distances = observed.drift.versions[STEP].distances()
    assert min(distances.values()) > 0.25
    assert len(observed.classes.values) == NAMED + 1
    assert sum(observed.classes.values.values()) == 3 * ANSWERS
    assert 'bundle_answer_drift_index{model="m",version="1",of="class"}' in text([observed.drift])


def test_of_many_networks_each_answer_is_counted() -> None:
    observed, asked = Observed(), Random(0).choices(range(MOST_KEPT), k=150 * ANSWERS)
    for number, which in enumerate(asked):
        observed.drift.observe(number % (NAMED + 1), 0.5, (f"m{which}", "1"))
    assert len(observed.classes.values) == MOST_KEPT * (NAMED + 1)
    assert sum(observed.classes.values.values()) == len(asked)


def test_a_version_that_was_unloaded_is_not_told(tmp_path: Path) -> None:
    """A model that was removed, or the candidate of a rollout that was refused."""
    observed, served = Observed(), Served(cast(Triton, Loaded()), tmp_path)
    observed.drift.is_there = served.is_there
    for _ in range(2):
        answered(observed, 10, 0.5)
    observed.drift.observe(1, 0.5, ("m", "2"))
    assert len(observed.drift.as_json()) == 2  # nobody has asked yet
    asyncio.run(served.look())
    (told,) = observed.drift.as_json()
    assert told["version"] == "1" and 'version="1"' in text([observed.drift])


def test_the_live_version_is_the_one_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """To one of several servers; else the history has it."""
    events = [{"what": "serves", "version": 1}, {"what": "begins", "version": 2}]
    assert live_version("birds", events) == "1"
    monkeypatch.setenv("LIVE_VERSIONS", "birds=2 sentiment_ensemble=7")
    assert live_version("birds", events) == live_version("birds", []) == "2"
    assert live_version("mice", events) == "1" and live_version("mice", []) is None


def test_the_first_requests_of_a_pipeline_count_as_its_own(tmp_path: Path) -> None:
    """While Triton is being asked what it has, too; strangers' names are all one."""
    served = Served(cast(Triton, Loaded("m")), tmp_path)
    found = []

    async def asked() -> None:
        served.refresh()
        await asyncio.sleep(0)
        for answered in (False, True):
            served.name("m", answered, lambda *series: found.append(series))
        await asyncio.gather(*served._naming)
        served.name("stranger", False, lambda *series: found.append(series))

    asyncio.run(asked())
    assert found == [("m", "1"), ("m", "1"), ("other", "")]


def test_what_is_served_is_known_before_anybody_asks(tmp_path: Path) -> None:
    """Also of a server that starts later than the door; else the first requests' log names none."""

    class Starting(Loaded):
        refusals = 2

        async def ask(self, method: str, **fields: str) -> Any:
            if self.refusals:
                self.refusals -= 1
                raise Refused(503, "not yet")
            return await super().ask(method, **fields)

    served = Served(cast(Triton, Starting("m")), tmp_path)
    for _ in range(2):  # Triton is asked once, and nobody is told that it serves nothing
        with pytest.raises(Refused):
            asyncio.run(served.pipelines())
    asyncio.run(served.learn())
    assert served.series("m") == ("m", "1")


def test_another_version_is_known_as_soon_as_it_is_live(tmp_path: Path) -> None:
    served = Served(cast(Triton, Loaded("m")), tmp_path)
    history = tmp_path / "history.json"
    for version in (1, 2):
        history.write_text(json.dumps({"m": [{"what": "serves", "version": version}]}))
        os.utime(history, (version, version))
        assert [each["version"] for each in asyncio.run(served.pipelines())] == [str(version)]
        assert served.history() is served.history()  # of years it is long
    known = served.history()
    history.write_text("{")  # as with too many open files, it cannot be read just now
    assert served.history() == known
    history.write_text("{}")
    assert served.history() == {}


def test_a_share_is_of_a_candidate_alone(tmp_path: Path) -> None:
    """A model's config may have a parameter of the user's that is called so."""

    class Sharing(Loaded):
        async def ask(self, method: str, **fields: str) -> Any:
            answer = await super().ask(method, **fields)
            if method == "ModelConfig":
                answer.config.parameters["share"].string_value = "half"
            return answer

    served = Served(cast(Triton, Sharing("m")), tmp_path)
    (found,) = asyncio.run(served.pipelines())
    assert found["share"] is None and not served.candidates


class Loaded:
    """Triton, with version 1 of this pipeline, or of a model that is none."""

    def __init__(self, pipeline: str = "") -> None:
        self._pipeline = pipeline

    async def ask(self, method: str, **fields: str) -> Any:
        await asyncio.sleep(0)
        if method == "ModelStatistics":
            return pb.ModelStatisticsResponse(model_stats=[{"name": "m", "version": "1"}])
        answer = pb.ModelConfigResponse(config={"name": fields["name"]})
        if self._pipeline:
            answer.config.input.add(name="TEXT", data_type="TYPE_STRING")
            answer.config.output.add(name="LABEL")
            answer.config.ensemble_scheduling.step.add(model_name="step")
        return answer


def test_a_reference_is_the_versions_own(tmp_path: Path) -> None:
    repository = tmp_path / "live"
    (repository / STEP[0]).mkdir(parents=True)
    (repository / STEP[0] / "labels.txt").write_text("tench\ngoldfish\n")
    answered(Observed(References(tmp_path, repository)), 1, 0.95)
    later = Observed(References(tmp_path, repository))
    answered(later, 2, 0.95)
    (told,) = later.drift.as_json()
    assert told["index"]["class"] > 0.25 and told["index"]["confidence"] == 0
    assert told["moved"] == [
        {"class": "tench", "then": 1, "now": 0.5},
        {"class": "goldfish", "then": 0, "now": 0.5},
    ]


def test_another_network_under_the_same_number_has_a_reference_of_its_own(tmp_path: Path) -> None:
    observed = Observed(References(tmp_path))
    for _ in range(2):
        answered(observed, 1, 0.95)
    # The door goes on, and so does a new one.
    for each in (observed, Observed(References(tmp_path))):
        each.drift.observe(1, 0.5, STEP, "another")
        (told,) = each.drift.as_json()
        assert told["taken"] is None and told["answers"] == 1 and told["index"] == {}


def test_the_identity_is_of_all_that_a_network_is_made_of(tmp_path: Path) -> None:
    def made(name: str, **files: str) -> str:
        for file, content in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return identity(tmp_path / name)

    one = made("one", **{"model.onnx": "a", "engine.json": "b"})
    assert one == made("same", **{"model.onnx": "a", "engine.json": "b"})
    assert one == made("one", **{"__pycache__/model.pyc": "c", ".gitkeep": ""})
    assert one != made("other", **{"model.onnx": "A", "engine.json": "b"})
    assert one != made("swapped", **{"model.onnx": "b", "engine.json": "a"})
    assert one != made("more", **{"model.onnx": "a", "engine.json": "b", "weights/w": ""})


@pytest.mark.parametrize(
    "nonsense",
    [
        {"classes": {}}, {"classes": {"0": 999}}, {"classes": {"0": 2000, "1": -1000}},
        {"confidence": {"3": 1}}, {"taken": 0}, {"taken": 10**15}, {"network": "another"},
        {"taken": "yesterday"},
    ],
)  # fmt: skip
def test_a_reference_that_cannot_be_is_taken_anew(
    tmp_path: Path, nonsense: dict[str, object]
) -> None:
    answered(Observed(References(tmp_path)), 1, 0.95)
    file = tmp_path / NAME
    (kept,) = json.loads(file.read_bytes()).items()
    file.write_text(json.dumps({kept[0]: kept[1] | nonsense}))
    observed = Observed(References(tmp_path))
    answered(observed, 2, 0.5)
    assert "bundle_answer_drift_index{" not in text([observed.drift])
    answered(observed, 2, 0.5)
    assert set(observed.drift.as_json()[0]["index"].values()) == {0}


def test_a_new_reference(tmp_path: Path) -> None:
    observed = Observed(References(tmp_path))
    for classes in (1, 1, 2):
        answered(observed, classes, 0.5)
    observed.drift.renew()
    assert observed.drift.as_json()[0]["index"] == {}
    assert sum(observed.classes.values.values()) == ANSWERS
    observed.drift.renew()  # of what is not whole there is none
    answered(observed, 2, 0.5)
    assert set(observed.drift.as_json()[0]["index"].values()) == {0}
    later = Observed(References(tmp_path))
    answered(later, 2, 0.5)
    assert set(later.drift.as_json()[0]["index"].values()) == {0}


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    for damaged in (b"{", b'{"\xe2": 1}'):
        (tmp_path / NAME).write_bytes(damaged)
        assert References(tmp_path).find(*STEP, "one") is None
    observed = Observed(References(tmp_path / "missing"))
    for _ in range(2):
        answered(observed, 1, 0.5)
    assert observed.drift.as_json()[0]["index"]
