"""What a container does without make: takes in an ONNX file or an IR, checks it, and lays it out to
be served as the main pipeline. A step of compose.yaml; and how a server begins that has /model. On
a GPU, later steps build the plan and lay it out.

    FROM=own/birds.onnx LABELS=own/birds.txt python -m scripts.commands.take_in
    python -m scripts.commands.take_in /model

Does nothing if the live version already is what is requested.
"""

import os
import sys
from pathlib import Path

from scripts.artefacts.step import Step
from scripts.base.errors import UserError, run_guarded
from scripts.recipes.layout import GPU
from scripts.repository import sources
from scripts.server import own_main
from scripts.stacks.local import LocalStack

LABELS, REQUIREMENTS = "labels.txt", "requirements.txt"


class Here(LocalStack):
    """An image brings what the steps need."""

    def prepare(self) -> None:
        """No server is started from here."""

    def run_step(self, step: Step, *arguments: str | Path) -> None:
        step.run_here(*arguments)


class HereForGpu(Here):
    """Later steps have images of their own."""

    flavour = "gpu"
    engine = GPU


def main() -> None:
    given = dict(os.environ)
    for folder in map(Path, sys.argv[1:]):
        if not any(folder.iterdir()):
            raise UserError(
                f"{folder} is empty",
                "mount a folder with an .onnx file or an .xml of OpenVINO, and labels.txt",
            )
        given = find_words(folder) | given
    source = sources.find_source(given.get("FROM", ""))
    if source.network is None:
        raise UserError(
            f"FROM={given.get('FROM', '')} needs more than this image has to be taken in",
            "name an .onnx file or an .xml of OpenVINO, or use make up",
        )
    if not Path(given["FROM"]).is_file():  # else as it was typed: make means the same by it
        given["FROM"] = str(source.network)
    on_gpu = given.get("FLAVOUR") == HereForGpu.flavour
    own_main.take_in(HereForGpu if on_gpu else Here, given)


def find_words(folder: Path) -> dict[str, str]:
    """The network and the labels in a folder that has nothing else of the kind."""
    found = {"FROM": str(folder)}
    texts = sorted(path for path in folder.glob("*.txt") if path.name != REQUIREMENTS)
    named = [path for path in texts if path.name == LABELS] or texts
    if len(named) > 1:
        listed = ", ".join(path.name for path in named)
        raise UserError(f"{folder} has several texts ({listed})", f"call the labels {LABELS}")
    return found | ({"LABELS": str(named[0])} if named else {})


if __name__ == "__main__":
    sys.exit(run_guarded(main))
