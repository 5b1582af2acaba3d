"""A model of a table -> ONNX, checked against its own framework.

    python -m kinds.table.export --source flowers.json --out build/flowers

Out: model.onnx (FP32 `input__0` [batch, columns] -> FP32 `output__0` [batch, classes], or values),
with --forest its trees for a GPU (checkpoint.tl), labels.txt, reference.npz and golden.npz (rows,
and the framework's answers) and manifest.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_serving.agreement import TABLE, Agreement, Bound, compare
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import (
    NOTHING,
    lines_of,
    of_file,
    of_labels,
    read_pins,
    require_labels,
    write_manifest,
)
from scripts.artefacts.progress import step, tell
from scripts.artefacts.workspace import FOREST
from scripts.base import files
from scripts.base.errors import UserError, reword_faults

# The same arithmetic in half as many bits.
BOUND = Bound(0.001)
ROWS, GOLDEN = 256, 32
MAKERS = ("xgboost-cpu", "lightgbm", "scikit-learn", "skl2onnx", "onnxmltools", "onnxruntime")


@dataclass(frozen=True)
class Table:
    source: Path
    labels: Path | None = None  # None: as the model calls its classes
    samples: Path | None = None  # rows for the check, besides those that are drawn
    forest: bool = False  # its trees too, for a GPU

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        source = of_file(self.source, before)
        if not source:
            raise UserError(f"there is no model at {self.source}", "name its file")
        found: dict[str, Any] = {**source, "precision": "fp32", "versions": read_pins(*MAKERS)}
        found["labels"] = of_labels(self.labels, before) if self.labels else None
        if self.samples and self.samples.is_file():
            found["samples"] = files.sha256(self.samples)
        if self.forest:
            found["versions"] |= read_pins("treelite")
        return found


def export(spec: Table, out: Path) -> None:
    name = spec.source.name
    with step(f"loading {name}"):
        import numpy as np
        import onnx

        from bundle_serving import onnxruntime_engine
        from bundle_serving.protocol import golden
        from kinds.table import conversions, originals, rows

        original = originals.load(spec.source)
    classes = labels_for(lines_of(spec.labels), original.classes, spec)
    with step("converting it to ONNX"):
        remedy = "serve a model of numbers alone, without parts of your own"
        with reword_faults(f"{name} cannot be converted to ONNX", remedy):
            model = original.as_onnx()
    asked = rows.draw_rows(model.graph, original.width, ROWS)
    if spec.samples:
        own = rows.read(spec.samples, original.columns, original.width)
        asked = np.concatenate([own[:ROWS], asked])
    with step(f"asking {name} itself"):
        answers = originals.answers(original, asked, name)
    with files.whole_folder(out) as draft:
        path = draft / "model.onnx"
        onnx.save(conversions.with_one_output(model, answers.shape[1]), path)
        with step("comparing the converted model with the original"):
            engine = onnxruntime_engine.Engine(path, threads=1)
            found = engine.only_output({rows.INPUT: asked})
        agreement = _require_equal(answers, found, f"{name} answers otherwise as ONNX")
        with step("asking both about rows with empty cells"):
            some_missing = rows.leave_some_out(asked)
            found = engine.only_output({rows.INPUT: some_missing})
            # Some refuse them, and scikit-learn's forests lose as ONNX what they make of them.
            try:
                expected = originals.answers(original, some_missing, name)
                takes_missing = compare(expected, found, TABLE).within(BOUND)
            except UserError:
                takes_missing = False
        if takes_missing:
            asked, answers = some_missing, expected
        else:
            tell("  it takes none: rows with empty cells will be refused")
        if spec.forest:
            with step("comparing its trees for a GPU with the original"):
                forest = conversions.convert_forest(original, name)
                found = originals.answers_of_forest(forest, asked, answers.shape[1])
            agreement = _require_equal(answers, found, f"{name} answers otherwise by treelite")
            forest.serialize(draft / FOREST)
        given: dict[str, Any] = {rows.INPUT: asked}
        np.savez_compressed(draft / "reference.npz", scores=answers, **given)
        # Whole rows, for a rollout asks them of the version before, too, which may take no others.
        whole = np.flatnonzero(~np.isnan(asked).any(axis=1))[:GOLDEN]
        questions = [{"INPUT": row[None]} for row in asked[whole]]
        golden.save(draft / "golden.npz", questions, scores=answers[whole])
        write_manifest(
            draft,
            spec.identity(),
            {
                "input": ["float32", original.width],
                "columns": list(original.columns),
                "classes": classes,
                "values": answers.shape[1],
                "answers": TABLE,
                "engine": onnxruntime_engine.NAME,
                "missing": takes_missing,
                **({"forest": files.sha256(draft / FOREST)} if spec.forest else {}),
            },
            agreement.record(BOUND),
            labels=classes,
        )


def _require_equal(expected: Any, found: Any, otherwise: str) -> Agreement:
    agreement = compare(expected, found, TABLE)
    tell(f"  {agreement}")
    if not agreement.within(BOUND):
        raise UserError(
            f"{otherwise} ({agreement}; {BOUND})",
            "nothing was changed; this model cannot be converted faithfully; if it splits by "
            "categories, train it on numbers alone",
        )
    return agreement


def labels_for(given: list[str], classes: Any, spec: Table) -> list[str]:
    if given:
        require_labels(given, len(classes), spec.labels, spec.source.name)
    if twice := [each for each in given if given.count(each) > 1]:
        raise UserError(
            f"{spec.labels} has {twice[0]} for more than one class", "give each its own name"
        )
    if given != list(classes) and sorted(given) == sorted(classes):
        raise UserError(
            f"{spec.labels} has the classes of {spec.source.name} in another order",
            "omit it: the model knows what they are called",
        )
    return given or list(classes)


if __name__ == "__main__":
    start(unless_it_fits(export))
