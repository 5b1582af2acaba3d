"""A post.py of the user's own -> what it makes of the scores that the network is known to give.
Runs in the server's environment, before it is published.

    python -m scripts.steps.try_post --post post.py --scores reference.npz --out read.npz
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from bundle_serving.own_steps import StepFault, read_by
from scripts.base import files
from scripts.base.errors import UserError, run_guarded


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--post", type=Path, required=True)
    parser.add_argument("--packages", default="", help="the folder with those that it imports")
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    scores = np.load(options.scores)["scores"]
    try:
        read = read_by(options.post.read_text(), options.packages, scores)
    except StepFault as fault:
        raise UserError.from_fault(fault) from None
    with files.whole_file(options.out) as draft, draft.open("wb") as file:
        np.savez_compressed(file, probabilities=read)
    return 0


if __name__ == "__main__":
    sys.exit(run_guarded(main))
