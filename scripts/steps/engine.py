"""ONNX -> the precision for this machine's CPU, checked on reference scores.

    python -m scripts.steps.engine --onnx build/onnx --precision auto --out build/engine

Compared with PyTorch's scores on the pictures of the export; int8, with the float32 network's on
those that were held back from its calibration. bf16 also with the float32 network's on many more:
on the user's photos (--samples), otherwise on scenes. Where there are labelled pictures, bf16 and
int8 may not be right more seldom on them than float32, instead, and classes may not stand in
another order than their names.

Out: engine.json (precision, and the result of the check). Runs in the server's environment.
"""

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.agreement import Bound, compare
from bundle_serving.infer import Question
from bundle_serving.networks import is_ir, network_in
from scripts.artefacts.exporting import start
from scripts.artefacts.manifest import Manifest, of_samples, read_pins
from scripts.artefacts.progress import step, tell
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.evaluation.scores import Answers, Paired, find_order, reorder
from scripts.settings.choices import PRECISIONS

# The largest difference from PyTorch's probabilities in float32, by the network's arithmetic. int8
# shifts probabilities; what counts is that labels stay the same, as many as ACCURACY says.
BOUNDS = {
    "fp32": Bound(0.001),
    "bf16": Bound(0.1, top1=0.99),
    "int8": Bound(1, top1=0.9),
    # TensorRT's on a GPU. It rounds float32 to TF32 where the GPU can: to as many bits as fp16's.
    "fp16": Bound(0.05),
    "tf32": Bound(0.05),
}
# Of a network that came in 8 bits: a number that is another in its last bit may be another level,
# and then all that follows. Two engines, or two sizes of a batch, are no nearer.
EIGHT_BITS = Bound(0.2, top1=0.9)
# Enough to tell 99% from less.
MOST_PICTURES = 200
# How the decision is made: earlier ones are made again.
SCHEMA = 3
# Inputs whose name in the file differs from that in the graph.
TENSORS = {"pixels": "input"}
NAMES = "labels.txt"  # beside the network

OF_OTHERS = "serve with PRECISION=fp32"
REMEDIES = {
    "int8": "calibrate on more pictures, or serve with PRECISION=auto",
    "fp32": "nothing was changed; please report this as a bug",
}


@dataclass(frozen=True)
class Labels:
    """Labelled pictures: their names in the folder, classes and sizes, as JSON."""

    labelled: Path  # the folder
    items: Path
    float32: Path  # the export, which may not be right more often by more than
    most_drop: float  # points
    ordered: Path | None = None  # where classes are written that stand in another order

    @property
    def digest(self) -> str:
        return f"{files.sha256(self.items)}, {self.most_drop:g}"


@dataclass(frozen=True)
class Check:
    onnx: Path  # the directory that export or quantise wrote
    precision: str = "auto"
    samples: Path | None = None  # photos
    labels: Labels | None = None

    def identity(self) -> dict[str, Any]:
        """Everything that the decision depends on."""
        return {
            "schema": SCHEMA,
            "onnx": Manifest.of_export(self.onnx).onnx["sha256"],
            "wanted": self.precision,
            "processor": processor(),
            **read_pins("openvino"),
            **of_samples(self.samples),
            **({"labelled": self.labels.digest} if self.labels else {}),
        }

    def fits(self, out: Path) -> bool:
        """Without photos or labelled pictures, those of the last check will do."""
        proved = files.read_json(out / "engine.json").get("identity", {})
        wanted, may_lack = self.identity(), {"samples", "labelled"}
        return bool(proved | wanted == proved and proved.keys() - wanted.keys() <= may_lack)


def choose_precision(check: Check, out: Path) -> None:
    if check.fits(out):
        tell(f"{out} fits: nothing to check")
        return
    with step("checking precisions on this processor"):
        decision = decide(check)
    tell(f"- precision {decision['precision']}: {decision['why']}")
    content = {"identity": check.identity()} | decision
    files.write(out / "engine.json", json.dumps(content, indent=2) + "\n")


def decide(check: Check) -> dict[str, Any]:
    """The precision to serve with, and why; raises if the requested one fails its check."""
    from bundle_serving.openvino_engine import has_bf16

    onnx, precision, labels = check.onnx, check.precision, check.labels
    if labels and labels.ordered:
        _require_order(labels, labels.ordered)
    rounded = Manifest.of_export(onnx).eight_bits
    if precision == "auto":
        if not (rounded or has_bf16()):
            return _in_float32(check, "this CPU has no bfloat16")
        first, why = ("int8", "it came in 8 bits") if rounded else ("bf16", "this CPU has bfloat16")
        try:
            return _require_labels(_proof(check, first, why), check)
        except UserError as refusal:
            return _in_float32(check, refusal.cause)
    if precision == "fp32":
        return _in_float32(check, "as asked")
    kept = Manifest.of_export(onnx).check.get("not in int8")
    why = f"as asked, with {len(kept)} layers not in int8" if kept else "as asked"
    return _require_labels(_proof(check, precision, why), check)


def _require_labels(proof: dict[str, Any], check: Check) -> dict[str, Any]:
    """Raises UserError where it costs labels."""
    precision, labels = proof["precision"], check.labels
    if not labels:
        return proof
    shown, truth = _show(check.onnx, labels)
    first = scores(network_in(labels.float32), shown, "fp32").argmax(axis=1) == truth
    second = scores(network_in(check.onnx), shown, precision).argmax(axis=1) == truth
    paired = Paired.from_right(first, second)
    said = f"on {paired.of} labelled pictures, against float32: {paired}"
    if paired.low > labels.most_drop / 100:
        raise UserError(
            f"{precision} is right more seldom ({said}; MAX_DROP={labels.most_drop:g} is the most)",
            REMEDIES.get(precision, OF_OTHERS),
        )
    return proof | {"why": f"{proof['why']}; {said}"}


def _require_order(labels: Labels, ordered: Path) -> None:
    """Raises UserError where the network's classes stand in another one than their names."""
    classes = (labels.float32 / NAMES).read_text().splitlines()
    shown, truth = _show(labels.float32, labels)
    first = scores(network_in(labels.float32), shown, "fp32").argmax(axis=1)
    answers = Answers(classes, truth, first[:, None], np.ones(len(truth)))
    if (order := find_order(answers)) is None:
        return
    files.write(ordered, "".join(f"{label}\n" for label in reorder(classes, order)))
    of, right = len(truth), int((order[truth] == first).sum())
    raise UserError(
        f"labels stand in another order than the network's classes: on {of} labelled pictures, "
        f"{answers.right.mean():.0%} are right, and {right / of:.0%} in that order",
        f"give LABELS={ordered.relative_to(ROOT)}; for make publish, copy it over the pipeline's "
        "file of labels",
    )


def _show(onnx: Path, labels: Labels) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """What can be read, as the network takes it, and its classes."""
    from bundle_serving.own_steps import StepFault
    from bundle_serving.pictures import PictureError, Transform, to_pixels

    how = Transform(**Manifest.of_export(onnx).transform)
    pixels, truth = [], []
    for name, number, _ in json.loads(labels.items.read_text()):
        try:
            pixels.append(to_pixels((labels.labelled / name).read_bytes(), how))
        except (PictureError, StepFault):
            continue
        truth.append(number)
    if not truth:
        raise UserError(f"no picture of {labels.labelled} can be read", "name others: EVAL=")
    return np.stack(pixels), np.array(truth, np.int64)


def _in_float32(check: Check, why: str) -> dict[str, Any]:
    """By OpenVINO; or by ONNX Runtime, if OpenVINO cannot, or rounds otherwise than is written."""
    from bundle_serving import onnxruntime_engine

    if not Manifest.of_export(check.onnx).eight_bits:
        try:
            return _proof(check, "fp32", why)
        except UserError as refusal:
            if is_ir(network_in(check.onnx)):
                raise
            why = refusal.cause
    written = _proof(check, "fp32", f"{why}; as it is written", by=onnxruntime_engine.NAME)
    return written | {"engine": onnxruntime_engine.NAME}


def _proof(check: Check, precision: str, why: str, by: str = "") -> dict[str, Any]:
    onnx = check.onnx
    asked = references(onnx)
    if precision == "bf16" and not check.labels:
        asked += by_float32(onnx, check.samples)
    expected = np.concatenate([each for _, each in asked])
    found = _ask_network(network_in(onnx), precision, [inputs for inputs, _ in asked], by)
    agreement = compare(expected, np.concatenate(found), answers(onnx))
    bound = read_bound(onnx, precision)
    if not agreement.within(bound):
        raise UserError(
            f"{precision} fails the accuracy check ({agreement}; {bound})",
            REMEDIES.get(precision, OF_OTHERS),
        )
    return {
        "precision": precision,
        "why": f"{why}; {agreement}",
        "check": agreement.record(bound),
    }


def read_bound(made: Path, precision: str) -> Bound:
    """A quantised network was made to keep so many labels."""
    if Manifest.of_export(made).eight_bits:
        return EIGHT_BITS
    if precision == "int8" and (asked := Manifest.of_export(made).check.get("bound")):
        return Bound(**asked)
    return BOUNDS[precision]


def by_float32(onnx: Path, samples: Path | None) -> list[tuple[Question, NDArray[Any]]]:
    """More pictures, and the same network's scores in float32. Nothing, if it takes no pictures."""
    made = Manifest.of_export(onnx)
    kind, *shape = made.onnx.get("input", [""])
    if kind != "uint8":
        return []
    shown: list[Question] = [{"input": each[None]} for each in _pictures(made, shape, samples)]
    return list(zip(shown, _ask_network(network_in(onnx), "fp32", shown), strict=True))


def _pictures(made: Manifest, shape: list[int], folder: Path | None) -> NDArray[np.uint8]:
    from bundle_serving.pictures import Transform, to_pixels
    from scripts.artefacts.samples import draw_scenes, read

    if folder is None:
        return draw_scenes(MOST_PICTURES, *shape[1:])
    how = Transform(**made.transform)
    return np.stack([to_pixels(each, how) for each in read(folder, MOST_PICTURES, "SAMPLES")])


def scores(network: Path, pixels: NDArray[np.uint8], precision: str = "int8") -> NDArray[Any]:
    """Of a network that takes pictures."""
    return np.concatenate(
        _ask_network(network, precision, [{"input": each[None]} for each in pixels])
    )


def _ask_network(
    network: Path, precision: str, shown: Sequence[Question], by: str = ""
) -> list[NDArray[Any]]:
    from bundle_serving import onnxruntime_engine, openvino_engine

    try:
        engine = (
            onnxruntime_engine.Engine(network, threads=0)
            if by == onnxruntime_engine.NAME or onnxruntime_engine.runs(network)
            else openvino_engine.Engine(network, precision, threads=0)
        )
        return [engine.only_output(inputs) for inputs in shown]
    except Exception as fault:  # ONNX Runtime's exceptions have no common base class
        message = " ".join(str(fault).split())[:300]
        raise UserError(
            f"{'ONNX Runtime' if by else 'OpenVINO'} cannot run this network: {message}",
            "export it with standard ONNX operators",
        ) from None


def answers(made: Path) -> str:
    """How the scores of an export are read."""
    return str(Manifest.of_export(made).onnx.get("answers") or "single-label")


def references(made: Path) -> list[tuple[Question, NDArray[Any]]]:
    """The reference of an export: inputs by name, one at a time, and PyTorch's scores."""
    found: list[tuple[Question, NDArray[Any]]] = []
    for path in sorted(made.glob("reference*.npz")):
        kept = {TENSORS.get(name, name): each for name, each in np.load(path).items()}
        scores = kept.pop("scores")
        for row in range(len(scores)):
            at = slice(row, row + 1)
            found.append(({name: each[at] for name, each in kept.items()}, scores[at]))
    return found


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.machine()


if __name__ == "__main__":
    start(choose_precision, precision=PRECISIONS)
