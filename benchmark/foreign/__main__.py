"""How networks fare that were not made here: each is added to a running server, asked about
pictures, and removed. Writes the table of docs/measuring/foreign.md.

    make up
    .venv/bin/python -m benchmark.foreign
    .venv/bin/python -m benchmark.foreign --only timm --below     without the server
"""

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np

from benchmark.foreign import graphs
from benchmark.foreign.adopted import Outcome, outcome
from benchmark.foreign.by_quantiser import EIGHT_BITS
from benchmark.foreign.case import Case, pictures
from bundle_client import Client
from scripts import bootstrap
from scripts.base import files, parts
from scripts.base.errors import run_guarded
from scripts.base.paths import ROOT
from scripts.measuring.machine import machine
from scripts.recipes import pipelines
from scripts.recipes.image import Image
from scripts.server import ask
from scripts.server.running import ensure_server
from scripts.stacks.state import State

NAME = "foreign_network"
PICTURES = 20
TABLE = ROOT / "docs" / "measuring" / "foreign.md"
Row = tuple[Case, Outcome]
BEGIN, END = "<!-- table: python -m benchmark.foreign -->\n", "<!-- /table -->\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names or origins")
    parser.add_argument("--below", action="store_true", help="by the same steps, without a server")
    options = parser.parse_args()
    bootstrap.ensure("foreign")
    server = None if options.below else ensure_server()
    rows: list[Row] = []
    asked, began = pictures(PICTURES), time.monotonic()
    for case in choose_cases(options.only):
        with tempfile.TemporaryDirectory() as folder:
            if server is None:
                with redirect_stdout(StringIO()):
                    found = outcome(case, Path(folder), asked)
            else:
                found = serve_case(case, Path(folder), asked, server)
        rows.append((case, found))
        print(f"{'' if fair(case, found) else 'WRONG '}{line(case, found)}", flush=True)
    print(summary(rows))
    if not options.only and server is not None:
        lasted = (time.monotonic() - began) / 60
        write(
            summary(rows),
            describe_run(server, lasted),
            by_origin(rows),
            "## Each of them",
            each(rows),
        )
    return 0 if all(fair(*row) for row in rows) else 1


def choose_cases(only: list[str]) -> Iterator[Case]:
    from benchmark.foreign import libraries

    of_kinds = (case for kind in parts.find("foreign") for case in kind.CASES)
    for case in (*graphs.CASES, *libraries.CASES, *of_kinds):
        if not only or any(part in f"{case.origin} {case.name}" for part in only):
            yield case


def serve_case(case: Case, folder: Path, asked: list[bytes], server: State) -> Outcome:
    """As a user does it, and as a client sees it."""
    with redirect_stdout(StringIO()):
        truth = case.make(folder)
    words = case.make_settings(folder) | {"NAME": NAME, "PRECISION": "fp32", "DECODE": "full"}
    done = make("add-model", **words)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and "Traceback" not in done.stdout + done.stderr, done.stderr
        return Outcome(errors[0].removeprefix("error: "))
    try:
        recipe = pipelines.find_pipeline(NAME).recipe
        if case.finds:
            (kind,) = parts.find("foreign")
            found: Outcome = kind.compare_boxes(asked, truth, recipe, server)
            return found
        assert isinstance(recipe, Image)
        expected = np.stack([truth(file) for file in asked])
        answered = np.full(expected.shape, np.nan)
        with Client(**ask.read_known(server.http), model=NAME) as client:
            for row, file in zip(answered, asked, strict=True):
                for label in client.classify(file, min(len(row), 1000)).labels:
                    row[label.index] = label.probability
        difference = float(np.nanmax(np.abs(answered - expected)))
        return Outcome("", difference, recipe.answers, recipe.most > 1)
    finally:
        make("remove-model", NAME=NAME)


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
    return found.is_served and found.difference <= case.bound


def line(case: Case, found: Outcome) -> str:
    if found.refusal:
        reason = found.refusal.partition("; ")[0].replace("|", "or")
        reason = textwrap.shorten(reason, 160, placeholder=" …")
        return f"| {case.name} | {case.origin} | refused: {reason} | |"
    how = ", ".join(
        filter(None, [found.answers, "" if found.together else "one picture at a time"])
    )
    return f"| {case.name} | {case.origin} | {how} | {found.difference:.4f} |"


def fates(rows: Sequence[Row]) -> tuple[int, int, int]:
    """How many were served as they should, refused as they should, or neither."""
    right = sum(found.is_served and fair(case, found) for case, found in rows)
    refused = sum(not found.is_served and fair(case, found) for case, found in rows)
    return right, refused, len(rows) - right - refused


def summary(rows: Sequence[Row]) -> str:
    right, refused, rest = fates(rows)
    return (
        f"Of {len(rows)} networks, {right} were served within {Case.bound} of their own answers "
        f"(in 8 bits {EIGHT_BITS}) on {PICTURES} pictures, {refused} refused with "
        f"the reason, and {rest} fared otherwise."
    )


def by_origin(rows: Sequence[Row]) -> str:
    table = "| from | networks | served | refused | otherwise |\n|---|---|---|---|---|\n"
    for origin in dict.fromkeys(case.origin for case, _ in rows):
        theirs = [row for row in rows if row[0].origin == origin]
        table += f"| {origin} | {len(theirs)} | {' | '.join(map(str, fates(theirs)))} |\n"
    return table


def each(rows: Sequence[Row]) -> str:
    head = "| network | from | answer | farthest from its own |\n|---|---|---|---|\n"
    return head + "".join(f"{line(*row)}\n" for row in rows)


def describe_run(server: State, minutes: float) -> str:
    of = machine(server)
    return (
        f"On {of['cores']} cores of an {of['processor']} ({of['abilities']}), {of['system']}, in "
        f"{minutes:.0f} minutes."
    )


def write(*parts: str) -> None:
    before, _, after = TABLE.read_text().partition(BEGIN)
    _, _, after = after.partition(END)
    table = "\n".join(f"{part.rstrip()}\n" for part in parts)
    files.write(TABLE, f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    sys.exit(run_guarded(main))
