"""An evaluation as tables in a terminal, and as one self-contained page."""

import base64
import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from bundle_serving.pictures import decode
from scripts.evaluation.figures import TOP, Figures, Interval, Measured, as_dict
from scripts.evaluation.labelled import Item
from scripts.evaluation.scores import Answers, OfClass
from scripts.evaluation.share import Share
from scripts.measuring.report import plots
from scripts.measuring.report.report import TEMPLATE as BENCH
from scripts.measuring.report.report import Headline, render

TEMPLATE = Path(__file__).with_name("evaluation.html")
MEASURED = Path(__file__).with_name("measured.html")
PAGE = "report.html"
LABELS = "labels.txt"
# Of classes in a terminal, and of pictures that could not be read on the page.
MOST_ROWS, MOST_REFUSED = 15, 100
THUMBNAIL = 224
ESCAPED = "backslashreplace"  # names of files may be no UTF-8
CERTAIN = 0.05


@dataclass(frozen=True)
class Thumbnail:
    name: str
    confidence: float
    image: str


def figure_rows(figures: Figures) -> Iterator[Sequence[str]]:
    yield "right", *_cells(figures.right), f"{figures.right.count:,} of {figures.right.of:,}"
    if figures.among_first:
        yield f"among the first {TOP}", *_cells(figures.among_first), ""
    calibration, ms = figures.calibration, figures.ms
    ends = f"{calibration.low:.3f} to {calibration.high:.3f}"
    yield "calibration error", f"{calibration.error:.3f}", ends, ""
    if figures.original:
        yield "the original", *_cells(figures.original.right), figures.original.what
    slow = f"p95 {ms['p95']:.0f}, p99 {ms['p99']:.0f} ms"
    yield "latency", f"{ms['p50']:.0f} ms", slow, f"{figures.a_second:.0f} a second"


def _cells(share: Share) -> tuple[str, str]:
    return f"{share.value:.1%}", ends_of(share)


def ends_of(share: Share | Interval) -> str:
    return f"{100 * share.low:.1f} to {100 * share.high:.1f}"


def class_rows(figures: Figures) -> Iterator[Sequence[str]]:
    """Those with the lowest recall; names may have any length, and so come last."""
    classes = worst_first(figures.classes)
    for each in classes[:MOST_ROWS]:
        recall, precision = map(_cells_or_none, (each.recall, each.precision))
        yield f"{each.recall.of:,}", *recall, f"{each.precision.of:,}", *precision, each.name
    if len(classes) > MOST_ROWS:
        yield *[""] * 6, f"and {len(classes) - MOST_ROWS} more"


def _cells_or_none(share: Share) -> tuple[str, str]:
    if not share.of:
        return "", ""
    return f"{share.value:.0%}", f"{100 * share.low:.0f}-{100 * share.high:.0f}"


def worst_first(classes: Sequence[OfClass]) -> list[OfClass]:
    return sorted(classes, key=lambda each: each.recall.value if each.recall.of else 2)


def describe_original(figures: Figures) -> str:
    """What serving costs, in labels and in points."""
    original = figures.original
    assert original
    paired, same = original.paired, f"{original.same:,} of {original.right.of:,}"
    said = f"the same answer as the original to {same}; served: {paired}"
    if not paired.only_first + paired.only_second:
        return f"{said}: exactly as often right"
    unlike = "a difference" if paired.p < CERTAIN else "no difference that is more than chance"
    return f"{said}, {unlike} (McNemar's p {paired.p:.2g})"


def warnings(figures: Figures, left_out: int, where: str, option: str = "") -> list[str]:
    """What the figures do not say by themselves. `option`: of commands, to mean this pipeline."""
    found = []
    if figures.labels:
        found.append(
            "the classes stand in another order than LABELS: in the order of the answers they are "
            f"in {where}/{LABELS}; copy it over the pipeline's file of labels, and make "
            f"publish{option}"
        )
    if figures.refused:
        name, why = next(iter(figures.refused.items()))
        found.append(
            f"{len(figures.refused):,} could not be read and are in no figure: {name} ({why})"
        )
    if left_out:
        found.append(f"files that are not of this kind by their names, and not asked: {left_out:,}")
    return found


def list_confused(figures: Figures) -> list[str]:
    return [
        f"{each.truth} taken for {each.called}: {each.count} of {each.of}"
        for each in figures.confused[:5]
    ]


def write(
    folder: Path,
    about: Mapping[str, Any],
    figures: Figures,
    answers: Answers,
    items: Sequence[Item],
    told: Sequence[str],
) -> None:
    """`items` are those that were answered."""
    figure = plots.reliability(figures.calibration.bins)
    plots.png(figure, folder / "reliability.png")
    (folder / "results.json").write_text(json.dumps({**about, **as_dict(figures)}, indent=2) + "\n")
    (folder / "answers.csv").write_text(_as_csv(answers, items), errors=ESCAPED)
    if figures.labels:
        (folder / LABELS).write_text("".join(f"{label}\n" for label in figures.labels))
    page = render(
        TEMPLATE,
        style=_read_style(),
        about=about,
        figures=figures,
        headlines=_headlines(figures),
        told=told,
        original=figures.original and _as_sentence(describe_original(figures)),
        pairs=[
            (
                pair,
                [_thumbnail(items[place], answers.confidence[place]) for place in pair.examples],
            )
            for pair in figures.confused
        ],
        classes=worst_first(figures.classes),
        refused=list(islice(figures.refused.items(), MOST_REFUSED)),
        plots={"reliability": plots.svg(figure)},
        ends=ends_of,
        percent=_percent,
    )
    (folder / PAGE).write_text(page, errors=ESCAPED)


def write_measured(folder: Path, about: Mapping[str, Any], found: Measured) -> None:
    """Of a kind that has figures of its own."""
    results = {**about, **found.as_dict()}
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    headlines = [_headline(name, each) for name, each in found.figures.items()]
    content = render(
        MEASURED,
        style=_read_style(),
        about=about,
        found=found,
        headlines=headlines,
        first=next(iter(found.figures)),
        classes=sorted(found.classes.items(), key=lambda each: each[1]),
        refused=list(islice(found.refused.items(), MOST_REFUSED)),
        percent=_percent,
    )
    (folder / PAGE).write_text(content, errors=ESCAPED)


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _read_style() -> str:
    """As the report of `make bench` looks."""
    _, _, after = BENCH.read_text().partition("<style>\n")
    return after.partition("</style>")[0]


def _as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _headline(name: str, share: Share | Interval) -> Headline:
    return Headline(name, f"{100 * share.value:.1f}", "%", ends_of(share))


def _headlines(figures: Figures) -> list[Headline]:
    found = [_headline("right", figures.right)]
    if first := figures.among_first:
        found.append(_headline(f"among the first {TOP}", first))
    calibration = figures.calibration
    ends = f"{calibration.low:.3f} to {calibration.high:.3f}"
    found.append(Headline("calibration error", f"{calibration.error:.3f}", "", ends))
    p95 = f"p95 {figures.ms['p95']:.0f} ms, {figures.a_second:.0f} a second"
    return [*found, Headline("median latency", f"{figures.ms['p50']:.0f}", "ms", p95)]


def _as_csv(answers: Answers, items: Sequence[Item]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["item", "truth", "answer", "confidence", "right"])
    for item, truth, first, sure in zip(
        items, answers.truth, answers.first, answers.confidence, strict=True
    ):
        called = answers.classes[first]
        writer.writerow(
            [item.name, answers.classes[truth], called, f"{sure:.6f}", int(truth == first)]
        )
    return file.getvalue()


def _thumbnail(item: Item, confidence: float) -> Thumbnail:
    """Of what is no picture, its name alone; of a text, the text."""
    if not isinstance(item.source, Path):
        return Thumbnail(item.source[:THUMBNAIL], confidence, "")
    file = io.BytesIO()
    try:
        with Image.open(item.source) as image:
            small = decode(image)
            small.thumbnail((THUMBNAIL, THUMBNAIL))
            small.save(file, "JPEG", quality=80)
    except OSError:
        return Thumbnail(item.source.name, confidence, "")
    image_of = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
    return Thumbnail(item.source.name, confidence, image_of)
