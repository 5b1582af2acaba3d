"""Runs the whole gpu flow in a copy of the project and reports which claims of docs/gpu.md hold.

    make prove

The report is one file, build/proof/<time>.md. It contains no host names and no paths, so that it
can be attached to an issue. The running server is left alone. A run that was interrupted goes on
where it was. MINUTES says how long a server is asked at full speed, and harmed.

Exit 0 if all that applies to this machine is confirmed, otherwise 1.
"""

from datetime import UTC, datetime

from scripts.base import console, files, lock
from scripts.base.paths import ROOT
from scripts.measuring import proof

FOLDER = ROOT / "build" / "proof"
SAID = {True: "confirmed", False: "not confirmed", None: "does not apply"}


def main() -> int:
    with lock.one_at_a_time(FOLDER / "lock"):  # a second one would go on with the same copy
        try:
            found = proof.prove()
        except KeyboardInterrupt:
            raise KeyboardInterrupt("make prove goes on where it was") from None
    report = FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.md"
    files.write(report, proof.as_markdown(found))
    for row in found["rows"]:
        console.note(f"{SAID[row['confirmed']]}: {row['claim']}")
    console.note(f"report: {report.relative_to(ROOT)}")
    return int(proof.has_failed(found))
