"""What `make prove` concludes from what its steps printed."""

import json
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest

from scripts.base import files, interrupts
from scripts.base.errors import run_guarded
from scripts.measuring import proof
from scripts.measuring.claims import ROWS, STEPS, Row, Step
from scripts.measuring.proof import Outcome
from scripts.recipes import pipelines
from tests.project import ROOT

ROW = Row("Several GPUs serve together", "up", r"containers see \d+ x ", "containers see ")


@pytest.mark.parametrize(
    ("exit_code", "line", "confirmed"),
    [
        (0, "- containers see 2 x NVIDIA L4", True),
        (0, "- containers see NVIDIA L4", None),
        (0, "- up already", False),
        (1, "error: no GPU; get one", False),
    ],
)
def test_a_row_is_confirmed_refuted_or_does_not_apply(
    exit_code: int, line: str, confirmed: bool | None
) -> None:
    verdict = proof._judge_row(ROW, [Outcome("up", exit_code, 1.0, [line])])
    assert verdict.confirmed is confirmed
    row = {"claim": verdict.claim, "confirmed": confirmed, "words": verdict.words}
    found = {"kind": "proof", "rows": [row], "versions": {}, "gpu": {}, "steps": []}
    assert proof.has_failed(found) is (confirmed is False)
    assert f"| {proof.ANSWERS[confirmed]} |" in proof.as_markdown(found)


@pytest.mark.parametrize(
    ("counted", "confirmed"), [("12 of 20", True), ("0 of 20", False), ("0 of 0", None)]
)
def test_a_network_in_float32_has_no_layer_in_half(counted: str, confirmed: bool | None) -> None:
    (row,) = (each for each in ROWS if each.claim == "Its layer information names the types")
    said = [f"  built in 3 s, {counted} layers in half precision"]
    assert proof._judge_row(row, [Outcome("up", 0, 1.0, said)]).confirmed is confirmed


def test_who_interrupts_a_run_is_told_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = import_module("scripts.commands.measure.prove")
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(proof, "prove", Mock(side_effect=KeyboardInterrupt))
    assert run_guarded(command.main) == interrupts.INTERRUPTED
    assert capsys.readouterr().err == "interrupted; make prove goes on where it was\n"


def test_a_run_that_was_interrupted_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same copy, and what was done is not done again but for the server."""
    monkeypatch.setattr(proof, "ROOT", tmp_path / "root")
    monkeypatch.setattr(proof, "BEGUN", tmp_path / "begun.json")
    monkeypatch.setattr(proof, "ROWS", ())
    monkeypatch.setattr(proof, "PYTHON", tmp_path / "bin" / "python")
    (tmp_path / "root").mkdir()
    program = tmp_path / "bin" / "python"
    files.write(program, f'#!/bin/sh\necho "$5" >> {tmp_path}/done\n')
    program.chmod(0o755)
    steps = (Step("up", "up"), Step("status", "echo a word"), Step("bench", "bench"))
    monkeypatch.setattr(proof, "STEPS", steps)

    def interrupt(step: Step, project: proof.Copy) -> Outcome:
        if step.name == "bench":
            raise KeyboardInterrupt
        return ran(step, project)

    ran = proof._ran
    monkeypatch.setattr(proof, "_ran", interrupt)
    with pytest.raises(KeyboardInterrupt):
        proof.prove()
    copy = Path(json.loads(proof.BEGUN.read_text())["folder"])
    assert copy.is_dir()
    monkeypatch.setattr(proof, "_ran", ran)
    assert [step["step"] for step in proof.prove()["steps"]] == ["up", "status", "bench"]
    assert (tmp_path / "done").read_text().split() == ["up", "up", "bench", "clean"]
    assert not proof.BEGUN.exists() and not copy.parent.exists()


def test_the_users_pipelines_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof adds some; and what theirs name elsewhere is found from the copy, too."""
    own = tmp_path / "theirs" / "own"
    recipe = "source: {}/birds.onnx\nlabels: ../networks/birds.txt\npre: ''\n"
    files.write(own / "recipes" / "birds.yaml", recipe.format("../../elsewhere"))
    monkeypatch.setenv("OWN", str(own))
    copy = proof._copy_own(tmp_path / "copy" / "own")
    named = recipe.format(tmp_path / "theirs" / "elsewhere")
    assert (copy / "recipes" / "birds.yaml").read_text() == named


def test_each_row_has_its_step_and_stands_in_the_documents() -> None:
    assert {row.step for row in ROWS} <= {step.name for step in STEPS}
    text = (ROOT / "docs" / "gpu.md").read_text()
    assert [row.claim for row in ROWS if f"| {row.claim} |" not in text] == []


@pytest.mark.parametrize("main", [pipelines.DEFAULT, pipelines.others()[0].name])
def test_the_plan_is_that_of_the_main_pipeline(
    main: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have plans, too."""
    monkeypatch.setenv("MAIN", main)
    pipelines.main_name.cache_clear()
    for each in pipelines.every():
        plan = {"identity": {"TensorRT": each.name}, "plan": {}}
        folder = tmp_path / "build" / "versions" / each.folder / "1" / "plan"
        files.write(folder / "manifest.json", json.dumps(plan))
    assert proof._versions(tmp_path)["versions"]["TensorRT"] == main
    monkeypatch.undo()
    pipelines.main_name.cache_clear()
