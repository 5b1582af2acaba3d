"""A user's network -> one that takes uint8 pixels as ours do, checked against the original.

    python -m scripts.steps.adopt --network birds.onnx --labels birds.txt \
        --pictures '{"resize": 256, "crop": 224, …}' --out build/onnx

Out: the same files as from export, and expected.npz: what the original says of the pictures' files,
prepared apart from what prepares them when served.
"""

from pathlib import Path
from typing import Any

from bundle_serving.agreement import Bound, compare
from bundle_serving.networks import is_ir
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import EXPECTED, Foreign, labels_for, lines_of
from scripts.artefacts.progress import step, tell
from scripts.base import files
from scripts.base.errors import UserError

# The same arithmetic on the same numbers, in a different order; or on the same picture, resized
# in a different order.
BOUND, PREPARED = Bound(0.001), Bound(0.01)
# What is done with a picture before it is pixels.
TRANSFORM = ("resize", "crop", "interpolation", "fit", "pad", "middle", "program", "packages")
# Of how many pictures it is seen what a network gives for inputs that are none.
WILD = 3


def adopt(wanted: Foreign, out: Path) -> None:
    name, how = wanted.network.name, wanted.pictures
    with step(f"reading {name}"):
        import numpy as np

        from scripts.intake.foreign import has_eight_bits
        from scripts.intake.forms import TOGETHER, Conversion, read
        from scripts.intake.original import Original, scores
        from scripts.intake.reading import has_branches, judge_scores
        from scripts.steps import checked
        from scripts.steps.engine import EIGHT_BITS

        identity = wanted.identity()
        labels = lines_of(wanted.labels)
        form, facts = read(wanted.network, wanted.data, how, wanted.output, len(labels))
        transform = {key: how[key] for key in TRANSFORM if key in how}
    with step(f"asking {name} itself"):
        original = Original(form.runnable, name, facts, how)
        shown = checked.show_pictures(wanted.samples, transform)
        seen = [pixels.transpose(1, 2, 0) for pixels in shown.pixels]
        numbers = original.numbers(seen)
        if facts.label:
            original.require_likeliest(facts.label, seen, numbers)
        graph, wild = form.model.graph, original.wild(seen[:WILD])
        reading = judge_scores(name, numbers, wild, graph, facts.output, wanted.gives)
        reference = scores(numbers, reading)
    tell(f"  {name} gives {reading.gives}: {reading.why}")
    if not labels:
        tell("  no labels: classes are called by their numbers; LABELS= names a text with theirs")
    of_one = numbers.shape[1] == 1
    labels = labels_for(labels, reference.shape[1], wanted.labels, name, of_one)
    is_rounded = not is_ir(wanted.network) and has_eight_bits(graph.node)
    bound, prepared = (EIGHT_BITS, EIGHT_BITS) if is_rounded else (BOUND, PREPARED)
    conversion = Conversion(form, facts, how, reading, shown.pixels, reference, bound)
    more: dict[str, Any] = {"eight_bits": True} if is_rounded else {}
    if has_branches(graph):  # by the number of pictures, perhaps
        more |= {"most_together": max(TOGETHER)}
    with files.whole_folder(out) as draft:
        made = checked.Made(
            identity=identity,
            untrained=False,
            transform=transform,
            labels=labels,
            weights={"source": name, "sha256": identity["sha256"]},
            called="the original",
            answers=reading.answers,
            together=conversion.write(draft),
            more=more,
        )
        answered = checked.finish(draft, made, shown, reference, bound)
        with step("preparing the pictures in another way"):
            expected = scores(np.concatenate(list(map(original.of_file, shown.files))), reading)
            agreement = compare(expected, answered[-len(expected) :], reading.answers)
        tell(f"  {agreement}")
        if not agreement.within(prepared):
            raise UserError(
                f"pictures are not prepared as {name} wants them ({agreement}; {prepared})",
                "nothing was changed; please report this as a bug, with PICTURES=",
            )
        np.savez_compressed(draft / EXPECTED, scores=expected)


if __name__ == "__main__":
    start(unless_it_fits(adopt))
