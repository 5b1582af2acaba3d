"""Weights -> ONNX, checked against PyTorch and put in place whole or not at all.

    python -m scripts.pipeline.export --arch resnet50 --weights default --out build/onnx

Out: model.onnx (uint8 NCHW `input` -> FP32 scores `output`, dynamic batch), labels.txt,
reference.npz (pixels, and PyTorch's scores on them), pictures/ and manifest.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from scripts import files
from scripts.errors import UserError, guarded
from scripts.pipeline.agreement import Bound
from scripts.pipeline.manifest import Manifest, Wanted, why_export
from scripts.pipeline.progress import step

# The most that any class's probability may differ from PyTorch's in float32: the same arithmetic,
# and half the digits.
BOUNDS = {"fp32": Bound(0.001), "fp16": Bound(0.05)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--weights", default="default", help="default, random, or a file")
    parser.add_argument("--precision", choices=BOUNDS, default="fp32")
    parser.add_argument("--samples", type=Path, help="a folder of photos for the check")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    wanted = Wanted(options.arch, options.weights, options.precision)
    reason = why_export(options.out, wanted)
    if reason is None:
        print(f"{options.out} fits: nothing to export")
        return 0
    export(wanted, options.samples, options.out)
    return 0


def export(wanted: Wanted, samples: Path | None, out: Path) -> None:
    import numpy as np

    with step(f"loading {wanted.arch}, weights {wanted.weights}"):
        from bundle_serving.pictures import Transform
        from scripts.pipeline import networks
        from scripts.pipeline.samples import noise, pictures

        network = networks.build(wanted)
        original = networks.Pixels(network).eval()
        model = networks.Pixels(network, wanted.precision).eval()
    with files.whole_folder(out) as draft:
        onnx_path = draft / "model.onnx"
        with step("exporting to ONNX"):
            _to_onnx(model, network.transform["crop"], onnx_path)
        with step("comparing ONNX with PyTorch"):
            how = Transform(**network.transform, decode="full")
            shown = pictures(samples, how)
            pixels = np.stack([*noise(how), *(each for _, each in shown)])
            reference = _pytorch(original, pixels)
            agreement = _check(onnx_path, pixels, reference, BOUNDS[wanted.precision])
        print(f"  {agreement}")
        # The last of the reference's rows are those of the pictures, in this order.
        np.savez_compressed(draft / "reference.npz", pixels=pixels, scores=reference)
        (draft / "pictures").mkdir()
        for number, (file, _) in enumerate(shown):
            (draft / "pictures" / f"{number:03}").write_bytes(file)
        (draft / "labels.txt").write_text("\n".join(network.labels) + "\n")
        manifest = Manifest(
            identity=wanted.identity(),
            untrained=wanted.untrained,
            transform=network.transform,
            onnx={
                "sha256": files.sha256(onnx_path),
                "input": ["uint8", 3, network.transform["crop"], network.transform["crop"]],
                "classes": len(network.labels),
                "weights": network.weights | {"loaded_sha256": networks.digest_of(network.module)},
            },
            check=agreement.record(BOUNDS[wanted.precision]),
        )
        (draft / "manifest.json").write_text(manifest.dump())


def _to_onnx(model: Any, crop: int, path: Path) -> None:
    import torch

    from scripts.pipeline.onnx_file import BATCH, save

    example = torch.zeros(2, 3, crop, crop, dtype=torch.uint8)
    save(model, {"input": example}, ({0: BATCH},), "output", path)


def _pytorch(model: Any, pictures: Any) -> Any:
    import torch

    with torch.inference_mode():
        return torch.cat([model(torch.from_numpy(p[None])) for p in pictures]).numpy()


def _check(path: Path, pictures: Any, reference: Any, bound: Bound) -> Any:
    import onnxruntime

    from scripts.pipeline.agreement import compare

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["output"], {"input": pictures})
    agreement = compare(reference, scores)
    if not agreement.within(bound):
        raise UserError(
            f"the ONNX graph disagrees with PyTorch ({agreement}; {bound})",
            "nothing was put in place; this architecture does not export faithfully",
        )
    return agreement


if __name__ == "__main__":
    sys.exit(guarded(main))
