"""The textbook's repository with the bundle's own network in it, served beside whatever else is up.

The network is the exported one without its first nodes, cast and normalisation, which the textbook
does in Python: the same weights, and a float32 picture as its input.
"""

import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import onnx
from onnx.utils import Extractor

from bundle_serving.process import main_pipeline
from scripts.artefacts.manifest import Manifest
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.server.served import find_served_version
from scripts.stacks import temporary

HERE = ROOT / "build" / "rivals"
REPOSITORY = Path(__file__).parent / "repository"

# Lets torchvision be imported; a Python model sees the files beside it, and nothing else of ours.
VISION = ROOT / "scripts" / "steps" / "vision.py"

# What Pixels (scripts/steps/networks.py) becomes in the graph.
NORMALISATION = ["Cast", "Sub", "Div"]


def serve_textbook() -> AbstractContextManager[tuple[str, str]]:
    """Where it is asked over HTTP and gRPC, until the block ends."""
    repository = HERE / "textbook"
    lay_out(find_served_version().workspace.onnx, repository)
    log = HERE / "logs" / "textbook.log"
    return temporary.triton("the textbook server", repository, log, main_pipeline.DEFAULT)


def lay_out(exported: Path, target: Path) -> None:
    manifest = Manifest.of_export(exported)
    with files.whole_folder(target) as draft:
        own = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY, draft, dirs_exist_ok=True, ignore=own)
        pictures = draft / "preprocessing" / "1"
        (pictures / "recipe.json").write_text(json.dumps(manifest.transform))
        shutil.copy(VISION, pictures)
        for config in draft.glob("*/config.pbtxt"):
            classes = f"dims: [ {manifest.onnx['classes']} ]"
            config.write_text(config.read_text().replace("dims: [ 1000 ]", classes))
        network = onnx.load(exported / "model.onnx")
        onnx.save(without_normalisation(network), draft / "resnet50" / "1" / "model.onnx")


def without_normalisation(network: onnx.ModelProto) -> onnx.ModelProto:
    first = network.graph.node[: len(NORMALISATION)]
    if [node.op_type for node in first] != NORMALISATION:
        raise UserError(
            f"the exported graph begins with {', '.join(node.op_type for node in first)}",
            f"the textbook takes what can do without {', '.join(NORMALISATION)}; compare with the "
            "others: make rivals ONLY=fastapi",
        )
    network = onnx.shape_inference.infer_shapes(network)  # which the user's own may lack
    normalised = first[-1].output[0]
    rest = Extractor(network).extract_model([normalised], ["output"])
    for node in rest.graph.node:
        node.input[:] = ["input" if name == normalised else name for name in node.input]
    rest.graph.input[0].name = "input"
    onnx.checker.check_model(rest, full_check=True)
    return rest
