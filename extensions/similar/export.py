"""A network without its last layer -> ONNX with vectors of length 1, checked against PyTorch.

    python -m extensions.similar.export --weights default --out build/embeddings

Out: model.onnx (uint8 NCHW `input` -> FP32 `embedding`), network.txt (the network's name, included
in every answer) and manifest.json.
"""

from pathlib import Path
from typing import Any

from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import Torchvision, write_manifest
from scripts.artefacts.progress import step, tell
from scripts.base import files
from scripts.base.errors import NoWeights, UserError

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
        from scripts.steps import networks

        try:
            network = networks.build(wanted)
        except NoWeights as fault:
            raise NoWeights(fault.cause, WAYS_OUT) from None
        model = _vectors(network)
    with files.whole_folder(out) as draft:
        onnx_path = draft / "model.onnx"
        with step("exporting to ONNX"):
            dimensions = _to_onnx(model, network.transform["crop"], onnx_path)
        with step("comparing ONNX with PyTorch"):
            difference = _check(model, network.transform, onnx_path)
        tell(f"  vectors within {difference:.2g}")
        manifest = write_manifest(
            draft,
            wanted.identity(),
            {"dimensions": dimensions, "weights": network.weights},
            {"max_difference": difference, "bound": BOUND},
            transform=network.transform,
            untrained=wanted.is_untrained,
        )
        (draft / "network.txt").write_text(manifest.describe() + "\n")
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


def _to_onnx(model: Any, crop: int, path: Path) -> int:
    import torch

    from scripts.artefacts.onnx_file import BATCH, save

    example = torch.zeros(2, 3, crop, crop, dtype=torch.uint8)
    save(model, {"input": example}, ({0: BATCH},), "embedding", path)
    with torch.inference_mode():
        return int(model(example).shape[1])


def _check(model: Any, transform: dict[str, Any], path: Path) -> float:
    import numpy as np
    import torch

    from bundle_serving.pictures import Transform
    from scripts.artefacts.samples import noise, pictures
    from scripts.intake.original import Session

    how = Transform(**transform, decode="full")
    pixels = np.stack([*noise(how), *(each for _, each in pictures(None, how))])
    with torch.inference_mode():
        expected = model(torch.from_numpy(pixels)).numpy()
    exported = Session(path, "the exported network")
    (vectors,) = exported.run(["embedding"], {"input": pixels})
    difference = float(np.abs(expected - vectors).max())
    if not difference <= BOUND:  # NaN does not agree either
        raise UserError(
            f"the ONNX graph disagrees with PyTorch (vectors differ by {difference:.2g}; "
            f"bound: {BOUND})",
            "nothing was changed; this network does not export faithfully",
        )
    return difference


if __name__ == "__main__":
    start(main)
