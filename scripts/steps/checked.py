"""A freshly exported ONNX file -> the folder that all later steps read.

Compares it with its original and adds labels.txt, reference.npz (pixels and the original's scores),
pictures/ and manifest.json.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.agreement import Agreement, Bound, compare
from bundle_serving.networks import network_in
from bundle_serving.own_steps import StepFault
from bundle_serving.pictures import PictureError, Transform
from scripts.artefacts.manifest import tell_repeated, write_manifest
from scripts.artefacts.progress import step, tell
from scripts.artefacts.samples import noise, pictures
from scripts.base.errors import UserError
from scripts.intake.original import Session, rows


@dataclass(frozen=True)
class Made:
    """A network before the comparison."""

    identity: dict[str, Any]
    untrained: bool
    transform: dict[str, Any]
    labels: list[str]
    weights: dict[str, str]
    called: str
    answers: str = "single-label"
    together: bool = True  # whether it takes several pictures at once
    more: Mapping[str, Any] = field(default_factory=dict)  # what else is known of the network


@dataclass(frozen=True)
class Shown:
    """What the networks are compared on."""

    files: list[bytes]
    pixels: NDArray[Any]  # noise, and then each file's


def show_pictures(samples: Path | None, transform: Mapping[str, Any]) -> Shown:
    how = Transform(**transform, decode="full")
    try:
        found = pictures(samples, how)
    except PictureError as fault:  # of a program of the user's own, as the next one
        why = UserError.from_fault(fault).cause
        raise UserError(why, "correct pre.py, or name pictures that it takes: SAMPLES=") from None
    except StepFault as fault:
        raise UserError.from_fault(fault, "correct pre.py") from None
    pixels = np.stack([*noise(how), *(each for _, each in found)])
    return Shown([file for file, _ in found], pixels)


def compare_and_save(
    draft: Path,
    made: Made,
    samples: Path | None,
    original: Callable[[NDArray[Any]], NDArray[Any]],
    bound: Bound,
) -> None:
    """`original`: pixels of one picture -> its scores."""
    with step(f"asking {made.called} itself"):
        asked = show_pictures(samples, made.transform)
        reference = np.concatenate([original(each[None]) for each in asked.pixels])
    finish(draft, made, asked, reference, bound)


def compare_batches(
    draft: Path,
    original: Callable[..., NDArray[Any]],
    batches: Iterable[Mapping[str, NDArray[Any]]],
) -> tuple[Agreement, list[NDArray[Any]]]:
    """On batches of its inputs, each of which is kept with the original's scores: reference-N.npz.
    Returns these scores, too."""
    exported = Session(network_in(draft), "the exported network")
    expected, actual = list[NDArray[Any]](), list[NDArray[Any]]()
    for number, asked in enumerate(batches):
        scores = original(*asked.values())
        given: dict[str, Any] = dict(asked)
        np.savez(draft / f"reference-{number}.npz", scores=scores, **given)
        expected.append(scores)
        actual += exported.run(None, given)
    return compare(np.concatenate(expected), np.concatenate(actual)), expected


def require(agreement: Agreement, bound: Bound, called: str) -> None:
    tell(f"  {agreement}")
    if not agreement.within(bound):
        raise UserError(
            f"the converted network disagrees with {called} ({agreement}; {bound})",
            "nothing was changed; this network cannot be converted faithfully",
        )


def finish(
    draft: Path, made: Made, asked: Shown, reference: NDArray[Any], bound: Bound
) -> NDArray[Any]:
    """Returns the ONNX file's scores."""
    if not np.isfinite(reference).all():
        raise UserError("the network gives NaN or infinity for a picture", "check its weights")
    path = network_in(draft)
    with step(f"comparing the converted network with {made.called}"):
        scores = rows(Session(path, "the exported network"), asked.pixels, made.together)
        agreement = compare(reference, scores, made.answers)
    require(agreement, bound, made.called)
    if made.identity.get("labels"):
        tell_repeated(made.labels)
    # The reference's last rows belong to the pictures, in this order.
    np.savez_compressed(draft / "reference.npz", pixels=asked.pixels, scores=reference)
    (draft / "pictures").mkdir()
    for number, file in enumerate(asked.files):
        (draft / "pictures" / f"{number:03}").write_bytes(file)
    write_manifest(
        draft,
        made.identity,
        {
            "input": [asked.pixels.dtype.name, *asked.pixels.shape[1:]],
            "classes": len(made.labels),
            "answers": made.answers,
            "together": made.together,
            "weights": made.weights,
            **made.more,
        },
        agreement.record(bound),
        transform=made.transform,
        labels=made.labels,
        untrained=made.untrained,
    )
    return scores
