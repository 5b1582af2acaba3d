"""A network without its last layer -> ONNX with vectors of length 1, checked against PyTorch.

    python -m extensions.similar.export --weights default --out build/embeddings

Out: model.onnx (uint8 NCHW `input` -> FP32 vectors `output`), network.txt (the network's name,
included in every answer), and what the comparison adds (scripts/steps/checked.py).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import Manifest, Torchvision
from scripts.artefacts.progress import step
from scripts.base import files
from scripts.base.errors import NoWeights

# A sixth of resnet18's arithmetic and a fifth of its weights.
ARCH = "mobilenet_v2"
# The largest difference from PyTorch's, over all dimensions.
BOUND = 0.001
WAYS_OUT = (
    f"give a file with {ARCH}'s weights (EMBEDDINGS=mine.pth or .safetensors), or try it untrained "
    "(EMBEDDINGS=random)"
)


def main(out: Path, weights: str = "default") -> None:
    unless_it_fits(export)(Torchvision(ARCH, weights), out)


def export(wanted: Torchvision, out: Path) -> None:
    with step(f"loading {wanted.arch}, weights {Path(wanted.weights).name}"):
        from bundle_serving.agreement import TABLE, Bound
        from scripts.steps import checked, networks
        from scripts.steps.export import to_onnx

        try:
            network = networks.build(wanted)
        except NoWeights as fault:
            raise NoWeights(fault.cause, WAYS_OUT) from None
        model = _vectors(network)
    with files.whole_folder(out) as draft:
        with step("exporting to ONNX"):
            to_onnx(model, network.transform["crop"], draft / "model.onnx")
        known = {"dimensions": network.module.last_channel}
        identity = wanted.identity()
        made = replace(network, labels=[]).as_made(identity, wanted.is_untrained, TABLE, known)
        checked.compare_and_save(draft, made, None, networks.make_asker(model), Bound(BOUND))
        (draft / "network.txt").write_text(Manifest.of_export(draft).describe() + "\n")
        files.let_all_read(draft)


def _vectors(network: Any) -> Any:
    from torch import nn

    from scripts.steps.networks import Pixels

    class Vectors(nn.Module):  # type: ignore[misc]  # torch comes without types here
        """uint8 pixels -> the input of the last layer, at length 1."""

        def __init__(self) -> None:
            super().__init__()
            network.module.classifier = nn.Identity()
            self.pixels = Pixels(network)

        def forward(self, pixels: Any) -> Any:
            return nn.functional.normalize(self.pixels(pixels), dim=1)

    return Vectors().eval()


if __name__ == "__main__":
    start(main)
