"""How networks fare that were not made here: each is added to a running server, asked about
pictures, and removed. Writes the table of docs/foreign.md.

    make up
    .venv/bin/python -m benchmark.foreign
    .venv/bin/python -m benchmark.foreign --only timm --below     without the server
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np

from benchmark.foreign import graphs
from benchmark.foreign.adopted import Outcome, outcome
from benchmark.foreign.case import Boxes, Case, Truth, farthest, pictures
from bundle_client import Box, Client
from scripts import bootstrap
from scripts.base import files
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.recipes.kinds.detection import Detection
from scripts.recipes.kinds.image import Image
from scripts.server import ask
from scripts.server.running import running_server
from scripts.stacks.state import State

NAME = "foreign_network"
PICTURES = 20
BOUND = 0.01
TABLE = ROOT / "docs" / "foreign.md"
BEGIN, END = "<!-- table: python -m benchmark.foreign -->\n", "<!-- /table -->\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names or origins")
    parser.add_argument("--below", action="store_true", help="by the same steps, without a server")
    options = parser.parse_args()
    bootstrap.ensure("foreign")
    server = None if options.below else running_server()
    rows, asked = [], pictures(PICTURES)
    for case in chosen(options.only):
        with tempfile.TemporaryDirectory() as folder:
            if server is None:
                with redirect_stdout(StringIO()):
                    found = outcome(case, Path(folder), asked)
            else:
                found = served(case, Path(folder), asked, server)
        rows.append((case, found))
        print(f"{'' if fair(case, found) else 'WRONG '}{line(case, found)}", flush=True)
    print(summary(rows))
    if not options.only and server is not None:
        write(rows)
    return 0 if all(fair(*row) for row in rows) else 1


def chosen(only: list[str]) -> Iterator[Case]:
    from benchmark.foreign import detectors, libraries

    for case in (*graphs.CASES, *libraries.CASES, *detectors.CASES):
        if not only or any(part in f"{case.origin} {case.name}" for part in only):
            yield case


def served(case: Case, folder: Path, asked: list[bytes], server: State) -> Outcome:
    """As a user does it, and as a client sees it."""
    with redirect_stdout(StringIO()):
        truth = case.make(folder)
    words = case.words(folder) | {"NAME": NAME, "PRECISION": "fp32", "DECODE": "full"}
    done = make("add-model", **words)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and "Traceback" not in done.stdout + done.stderr, done.stderr
        return Outcome(errors[0].removeprefix("error: "))
    try:
        recipe = pipelines.named(NAME).recipe
        if isinstance(recipe, Detection):
            return found_in(asked, truth, recipe, server)
        assert isinstance(recipe, Image)
        expected = np.stack([truth(file) for file in asked])
        answered = np.full(expected.shape, np.nan)
        with Client(**ask.known(server.http), model=NAME) as client:
            for row, file in zip(answered, asked, strict=True):
                for label in client.classify(file, min(len(row), 1000)).labels:
                    row[label.index] = label.probability
        difference = float(np.nanmax(np.abs(answered - expected)))
        return Outcome("", difference, recipe.answers, recipe.batch.max > 1)
    finally:
        make("remove-model", NAME=NAME)


def found_in(asked: list[bytes], truth: Truth, recipe: Detection, server: State) -> Outcome:
    with Client(**ask.known(server.http), model=NAME) as client:
        answers = [boxes(client.detect(file).boxes) for file in asked]
    threshold = recipe.boxes.threshold
    pairs = zip(map(truth, asked), answers, strict=True)
    return Outcome("", max(farthest(*pair, threshold) for pair in pairs), "boxes")


def boxes(found: Sequence[Box]) -> Boxes:
    corners = [(box.left, box.top, box.right, box.bottom) for box in found]
    return {
        "BOXES": np.array([corners], np.float32),
        "LABELS": np.array([[box.label.encode() for box in found]]),
        "SCORES": np.array([[box.score for box in found]]),
    }


def make(command: str, **words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", command],
        cwd=ROOT,
        env=os.environ | words,
        capture_output=True,
        text=True,
    )


def fair(case: Case, found: Outcome) -> bool:
    if case.refused:
        return case.refused in found.refusal
    return found.served and found.difference <= BOUND


def line(case: Case, found: Outcome) -> str:
    if found.refusal:
        reason = found.refusal.partition("; ")[0].replace("|", "or")
        return f"| {case.name} | {case.origin} | refused: {reason[:160]} | |"
    how = ", ".join(
        filter(None, [found.answers, "" if found.together else "one picture at a time"])
    )
    return f"| {case.name} | {case.origin} | {how} | {found.difference:.4f} |"


def summary(rows: list[tuple[Case, Outcome]]) -> str:
    right = sum(found.served and fair(case, found) for case, found in rows)
    refused = sum(not found.served and fair(case, found) for case, found in rows)
    rest = len(rows) - right - refused
    return (
        f"Of {len(rows)} networks, {right} were served within {BOUND} of their own answers on "
        f"{PICTURES} pictures, {refused} refused with the reason, and {rest} fared otherwise."
    )


def write(rows: list[tuple[Case, Outcome]]) -> None:
    head = "| network | from | answer | farthest from its own |\n|---|---|---|---|\n"
    table = head + "".join(f"{line(*row)}\n" for row in rows)
    before, _, after = TABLE.read_text().partition(BEGIN)
    _, _, after = after.partition(END)
    files.write(TABLE, f"{before}{BEGIN}\n{summary(rows)}\n\n{table}\n{END}{after}")


if __name__ == "__main__":
    raise SystemExit(main())
