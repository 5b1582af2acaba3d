"""Commands that ask."""

from bundle_client import command as asking
from bundle_client.answers import Label, Result
from bundle_client.errors import PictureRefused
from tests.shown.running import PHOTO


def classify() -> None:
    """One picture, one of several, and what is none."""
    names = "television, television system, TV set", "mug"
    labels = tuple(Label(n, name, 0.9 / (n + 1)) for n, name in enumerate(names))
    fault = PictureRefused("is not a picture: it begins as a PDF does", "send a JPEG or PNG")
    fault.source = PHOTO
    answers = Result(PHOTO, labels, 12345.6), Result(PHOTO, error=fault)
    for sources in ([PHOTO], [PHOTO, PHOTO]):
        write = asking.print_as(asking.for_people(sources))
        asking.report(iter(answers), 1, write, counts=False)


SHOWN = {"classify": classify}
