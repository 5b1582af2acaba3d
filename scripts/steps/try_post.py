"""A post.py of the user's own -> what it makes of the scores that the network is known to give.
Runs in the server's environment, before it is published.

    python -m scripts.steps.try_post --post post.py --scores reference.npz --out read.npz
"""

from pathlib import Path

import numpy as np

from bundle_serving.own_steps import StepFault, read_by
from scripts.artefacts.exporting import start
from scripts.base import files
from scripts.base.errors import UserError


def main(post: Path, scores: Path, out: Path, packages: str = "") -> None:
    """`packages`: the folder with those that it imports."""
    try:
        read = read_by(post.read_text(), packages, np.load(scores)["scores"])
    except StepFault as fault:
        raise UserError.from_fault(fault) from None
    with files.whole_file(out) as draft, draft.open("wb") as file:
        np.savez_compressed(file, probabilities=read)


if __name__ == "__main__":
    start(main)
