"""Runs the whole gpu flow in a copy of the project and reports which claims of docs/gpu.md hold.

    make prove

The report is build/proof/<time>/proof.md, with the same data in proof.json. It contains no host
names and no paths, so that it can be attached to an issue. The running server is left alone.

Exit 0 if all that applies to this machine is confirmed, otherwise 1.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from scripts.base import console, files
from scripts.base.paths import ROOT
from scripts.measuring import proof

SAID = {True: "confirmed", False: "not confirmed", None: "does not apply"}


def main() -> int:
    folder = ROOT / "build" / "proof" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    found = proof.prove()
    files.write(folder / "proof.json", json.dumps(found, indent=2) + "\n")
    files.write(folder / "proof.md", proof.as_markdown(found))
    for row in found["rows"]:
        console.note(f"{SAID[row['confirmed']]}: {row['claim']}")
    console.note(f"report: {(folder / 'proof.md').relative_to(ROOT)}")
    return int(proof.has_failed(found))
