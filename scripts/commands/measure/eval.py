"""Measures how right the served model is on labelled data, and writes a report.

    make eval EVAL=val            a folder with a folder for each class
    make eval EVAL=val.csv        or a list of files and their labels: .csv, .tsv, .jsonl
    make eval MODEL=birds         another pipeline; without EVAL, on the data of the last time
    make eval JSON=1              all figures as a line of JSON

Asks the server through its door, and the original beside it. The report is
build/eval/<time>/report.html; beside it are results.json, answers.csv and the plot.
"""

import json
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from scripts.base import console, files, lock, tables
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.evaluation.figures import Apart, Figures, as_dict, compute_figures
from scripts.measuring.report import evaluation
from scripts.recipes import pipelines
from scripts.repository import evaluations
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.server import evaluating
from scripts.server.running import ensure_served
from scripts.server.served import find_served_version
from scripts.settings import arguments
from scripts.stacks.state import State

REPORTS = ROOT / "build" / "eval"


def main() -> None:
    as_json = arguments.load().json
    with console.all_output_on_stderr() if as_json else nullcontext():
        found = evaluate()
    if as_json:
        print(json.dumps(found))


def evaluate() -> dict[str, Any]:
    pipeline = pipelines.find_asked_pipeline()
    path = evaluations.find_data(pipeline)
    if path is None:
        raise UserError("no labelled data given", "name some: EVAL=val (docs/measuring/eval.md)")
    evaluations.require_given()
    server = ensure_served(pipeline)
    version = find_served_version(pipeline)
    has_network = version.workspace.onnx.is_dir()
    if has_network and (apart := pipeline.recipe.read_apart(path, version.workspace)):
        return evaluate_apart(server, version, path, apart)
    data = evaluating.read_data(version, path)
    found, answers = evaluating.ask_all(server, version, data)
    read = data.pick(np.flatnonzero(found.is_read))
    original = evaluating.ask_original(server, version, read)
    ms = found.ms[found.is_read]
    figures = compute_figures(answers, ms, found.seconds, found.refused, original)
    about = describe(version, path) | {"classes": len(figures.classes)}
    folder = name_folder()
    shown = str(folder.relative_to(ROOT))
    told = evaluation.warnings(figures, data.left_out, shown, pipeline.option)
    with lock.one_at_a_time():
        evaluating.require_still_served(version)
        with files.whole_folder(folder) as draft:
            evaluation.write(draft, about, figures, answers, read.items, told)
        evaluating.note_confidence(version, answers)
        shared = Shared(server.settings_at_start, pipeline)
        evaluating.note(version, shared, path, figures.right, "eval")
    show(figures, told, f"{version.describe()}")
    console.note(f"report: {shown}/report.html")
    return {**about, **as_dict(figures)}


def name_folder() -> Path:
    return REPORTS / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def describe(version: Version, path: Path) -> dict[str, str | int]:
    return {
        "title": version.pipeline.ensemble,
        "version": version.number,
        "network": version.describe(),
        "data": path.name,
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "together": evaluating.TOGETHER,
    }


def evaluate_apart(server: State, version: Version, path: Path, data: Apart) -> dict[str, Any]:
    """Of a kind that has figures of its own."""
    found = evaluating.measure_apart(server, version, path, data)
    about, folder = describe(version, path), name_folder()
    with lock.one_at_a_time():
        evaluating.require_still_served(version)
        with files.whole_folder(folder) as draft:
            evaluation.write_measured(draft, about, found)
        shared = Shared(server.settings_at_start, version.pipeline)
        evaluating.note(version, shared, path, found, "eval")
    name, first = next(iter(found.figures.items()))
    console.say(f"{name} {first.value:.1%} · {version.describe()}, on {found.items:,}")
    figures = [(name, str(each)) for name, each in found.figures.items()]
    tables.show("lr", ("", "95% certain"), figures)
    classes = sorted(found.classes.items(), key=lambda each: each[1])
    tables.show("lr", ("class", name), [(label, f"{value:.1%}") for label, value in classes])
    for item, why in found.refused.items():
        console.note(f"warning: could not be read, and is in no figure: {item} ({why})")
    console.note(f"report: {folder.relative_to(ROOT)}/report.html")
    return {**about, **found.as_dict()}


def show(figures: Figures, told: list[str], what: str) -> None:
    console.say(f"{figures.right.value:.1%} right · {what}")
    tables.show("lrll", ("", "", "95% certain", ""), evaluation.figure_rows(figures))
    columns = ("items", "recall", "certain", "called so", "precision", "certain", "class")
    tables.show("rrrrrrl", columns, evaluation.class_rows(figures))
    for line in evaluation.list_confused(figures):
        console.note(line)
    if figures.original:
        console.note(evaluation.describe_original(figures))
    for line in told:
        console.note(f"warning: {line}")
