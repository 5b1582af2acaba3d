"""What its commands show: tests/shown/every.py."""

from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import patch

from bundle_client.errors import PictureRefused
from scripts.base import tables
from tests.shown.running import KNOWN, PHOTO, command, run


def similar() -> None:
    module = command("similar")
    found = [module.Found(0.98765, PHOTO, "mobilenet_v2 (untrained)")]
    tables.show("rl", (), map(module.make_row, found))


def index() -> None:
    """Of pictures that are new, broken, and gone."""
    fault = PictureRefused("is not a picture: it begins as a PDF does", "send a JPEG or PNG")
    fault.source = PHOTO
    answers = [
        SimpleNamespace(source=PHOTO, error=None),
        SimpleNamespace(source=PHOTO, error=fault),
    ]
    before = SimpleNamespace(network="resnet50, weights default, of torchvision 0.21")
    growth = SimpleNamespace(
        changed=[PHOTO] * 1234, unchanged=12_345, gone=[PHOTO] * 7, replaces=before,
        embed_all=lambda _: answers, index=Index(),
    )  # fmt: skip
    at = "extensions.similar.commands.index"
    with patch.dict("os.environ", IN="."):
        run("index", {
            f"{at}.service.ensure": lambda _: KNOWN,
            f"{at}.service.where": lambda _: KNOWN,
            f"{at}.ask.read_known": lambda _: {},
            f"{at}.indexing.describe_maker": lambda _: None,
            f"{at}.Growth.start": lambda *_: growth,
            f"{at}.Client": lambda **_: nullcontext(),
        })  # fmt: skip


class Index:
    def __len__(self) -> int:
        return 123_456

    def paths(self) -> list[str]:
        return []

    def remove(self, _: set[str]) -> None: ...

    def save(self, _: object) -> None: ...


SHOWN = {"similar": similar, "index": index}
