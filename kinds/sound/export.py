"""A network that tells sounds apart -> ONNX, checked against PyTorch, with its labels.

    python -m kinds.sound.export --weights drawn --hearing '{"rate": 16000, …}' \
        --out build/sounds

Out: model.onnx (LOG_MEL [batch, windows, mels, frames] and SHARES [batch, windows] -> SCORES),
labels.txt, reference-*.npz (inputs and PyTorch's scores), golden.npz (WAV files and PyTorch's
scores) and manifest.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bundle_serving.agreement import Agreement, Bound
from bundle_serving.protocol import golden
from kinds.sound.drawings import DRAWN, one_of_each
from kinds.sound.serving.sounds import Hearing, to_windows
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import (
    NOTHING,
    of_file,
    of_labels,
    read_pins,
    tell_repeated,
    write_manifest,
)
from scripts.artefacts.progress import step
from scripts.base import files
from scripts.base.errors import NoWeights

MAKERS = ("torch", "onnx", "onnxscript")
BOUNDS = {"fp32": Bound(0.001), "fp16": Bound(0.05)}
LONGER = 2.6  # times a window, as far as a sound may be so long


@dataclass(frozen=True)
class Listener:
    weights: str  # "drawn": what the project comes with; or a file
    hearing: Mapping[str, Any]  # the fields of kinds.sound.serving.sounds.Hearing
    precision: str = "fp32"  # or "fp16": half precision inside, for a strongly typed engine
    labels: Path | None = None  # of a file's classes

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        weights = {"source": self.weights}
        if self.weights != DRAWN:
            weights = of_file(Path(self.weights), before.get("weights"))
            if not weights:
                raise NoWeights(
                    f"there is no weights file at {self.weights}",
                    "give a .pth or .safetensors file (SOUNDS=street.pth), or take the network "
                    "that comes with the project (SOUNDS=drawn)",
                )
        return {
            "arch": "listener",
            "weights": weights,
            "hearing": dict(self.hearing),
            "precision": self.precision,
            "labels": of_labels(self.labels, before) if self.labels else None,
            "versions": read_pins(*MAKERS),
        }


def export(spec: Listener, out: Path) -> None:
    identity, how = spec.identity(), Hearing(**spec.hearing)  # first, for it says what is not there
    with step(f"loading the network, weights {Path(spec.weights).name}"):
        from kinds.sound import network
        from scripts.steps import checked

        module, labels, weights = network.build(spec.weights, spec.hearing, spec.labels)
    if spec.labels:
        tell_repeated(labels)
    with files.whole_folder(out) as draft:
        with step("exporting to ONNX"):
            inside = network.Averaged(module, spec.precision).eval()
            network.to_onnx(inside, how, draft / "model.onnx")
        with step("comparing ONNX with PyTorch"):
            agreement = _compare_onnx(module, how, draft)
        bound = BOUNDS[spec.precision]
        checked.require(agreement, bound, "PyTorch")
        write_manifest(
            draft,
            identity,
            {"classes": len(labels), "weights": weights},
            agreement.record(bound),
            transform=spec.hearing,
            labels=labels,
        )


def _compare_onnx(module: Any, how: Hearing, out: Path) -> Agreement:
    """On sounds of one window and of several; and on some of both, filled up."""
    from kinds.sound.network import Averaged
    from scripts.steps import checked, networks

    sounds = list(one_of_each(min(how.seconds, how.longest)).values())
    longest = min(LONGER * how.seconds, how.longest)
    longer = list(one_of_each(longest, seed=1).values())[:2]
    together = (sounds, longer, [sounds[0], longer[0]])
    agreement, expected = checked.compare_batches(
        out,
        networks.make_asker(Averaged(module).eval()),
        [to_windows(each, how) for each in together],
    )
    questions = [{"INPUT": np.frombuffer(each, np.uint8)[None]} for each in (*sounds, *longer)]
    golden.save(out / "golden.npz", questions, scores=np.concatenate(expected[:2]))
    return agreement


if __name__ == "__main__":
    start(unless_it_fits(export), precision=BOUNDS)
