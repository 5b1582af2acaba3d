"""A network that tells sounds apart -> ONNX, checked against PyTorch, with its labels.

    python -m kinds.sound.export --weights drawn --hearing '{"rate": 16000, …}' \
        --out build/sounds

Out: model.onnx (LOG_MEL [batch, windows, mels, frames] and SHARES [batch, windows] -> SCORES),
labels.txt, reference-*.npz (inputs and PyTorch's scores), golden.npz (WAV files and PyTorch's
scores) and manifest.json.
"""

from pathlib import Path
from typing import Any

import numpy as np

from bundle_serving.agreement import Agreement, Bound
from bundle_serving.protocol import golden
from kinds.sound.serving.sounds import Hearing, to_windows
from kinds.sound.source import Listener
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import tell_repeated, write_manifest
from scripts.artefacts.progress import step
from scripts.base import files

BOUNDS = {"fp32": Bound(0.001), "fp16": Bound(0.05)}
LONGER = 2.6  # times a window, as far as a sound may be so long


def export(spec: Listener, out: Path) -> None:
    identity, how = spec.identity(), Hearing(**spec.hearing)  # first, for it says what is not there
    with step(f"loading the network, weights {Path(spec.weights).name}"):
        from kinds.sound import network
        from scripts.steps import checked

        built = network.build(spec)
    if spec.labels:
        tell_repeated(built.labels)
    with files.whole_folder(out) as draft:
        with step("exporting to ONNX"):
            inside = network.Averaged(built.module, spec.precision).eval()
            network.to_onnx(inside, how, draft / "model.onnx")
        with step("comparing ONNX with PyTorch"):
            agreement = _compare_onnx(built.module, how, draft)
        bound = BOUNDS[spec.precision]
        checked.require(agreement, bound, "PyTorch")
        write_manifest(
            draft,
            identity,
            {"classes": len(built.labels), "weights": built.weights},
            agreement.record(bound),
            transform=spec.hearing,
            labels=built.labels,
        )


def _compare_onnx(module: Any, how: Hearing, out: Path) -> Agreement:
    """On sounds of one window and of several; and on some of both, filled up."""
    from kinds.sound.drawings import one_of_each
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
