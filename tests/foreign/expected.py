"""What becomes of a network that was not made here: what its case says."""

from pathlib import Path

from benchmark.foreign.adopted import outcome
from benchmark.foreign.case import Case, pictures


def require_as_expected(case: Case, folder: Path, files: list[bytes] | None = None) -> None:
    found = outcome(case, folder, files or pictures(4))
    if case.refused:
        assert case.refused in found.refusal and "\n" not in found.refusal
    else:
        assert not found.refusal and found.difference < case.bound
