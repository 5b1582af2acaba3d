"""Whatever the names on S3 are, what is fetched stays in its folder."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from extensions.s3.access import Access, Keys
from extensions.s3.bucket import Stored
from extensions.s3.location import parse
from extensions.s3.remote import Remote
from scripts.base.errors import UserError
from scripts.settings.settings import DEFAULTS, Settings
from tests.unit.building.test_below import around, folder

__all__ = ["folder"]


class Bucket:
    """What S3 has, where anybody with its key may have written it."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def list_below(self, prefix: str) -> dict[str, Stored]:
        now = datetime.now(UTC)
        return {key.removeprefix(prefix): Stored(key, 1, "", now) for key in self.keys}

    def download(self, key: str, path: Path, advance: Any) -> None:
        path.write_text("x")


def fetched(folder: Path, *names: str) -> None:
    bucket: Any = Bucket(*(f"live-versions/3/{name}" for name in names))
    location, settings = parse("s3://bundle-models/live-versions"), Settings(DEFAULTS)
    Remote(Access(location, Keys("", "", "", "", ""), settings), bucket).fetch("3", folder)


@pytest.mark.parametrize("name", ["../evil", "/{outside}/evil", "a//b", "a/../../evil", "a\\b"])
def test_what_comes_from_s3_stays_in_its_folder(folder: Path, name: str) -> None:
    before, here = around(folder), {*folder.rglob("*")}
    with pytest.raises(UserError, match="below live-versions/3/ on S3, "):
        fetched(folder, "model.onnx", name.format(outside=folder.parent / "outside"))
    assert around(folder) == before and {*folder.rglob("*")} == here
    fetched(folder, "", "models/", "models/1/", "models/1/model.onnx", "version.json")
    assert (folder / "models" / "1" / "model.onnx").read_text() == "x"
