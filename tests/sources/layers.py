"""Environments that hold what some layers of requirements/ install and nothing else: hard-linked
from this one, which the tests' layers have filled."""

import importlib.util
import os
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from scripts import bootstrap
from scripts.base.paths import VENV
from tests.sources.imports import HOMES, Layers, installed


@contextmanager
def environment(layers: Layers) -> Iterator[Path]:
    """Beside what its files are linked to: a link cannot lead to another file system."""
    with tempfile.TemporaryDirectory(prefix="layers-", dir=VENV.resolve()) as name:
        folder = Path(name)
        venv.create(folder, symlinks=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        (here,) = VENV.glob("lib/python*/site-packages")
        for package in installed(layers):
            for file in metadata.files(package) or ():
                if not {"..", "__pycache__"} & {*file.parts}:
                    _link(here / file, packages / file)
        (packages / bootstrap.OURS).write_text("".join(f"{home}\n" for home in HOMES))
        (folder / bootstrap.STAMPS.name).mkdir()
        for layer in layers:
            (folder / bootstrap.STAMPS.name / layer).write_text(bootstrap.digest(layer))
        yield folder


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.link(source, target)
    if source.suffix == ".py":  # what Python made of it here need not be made again
        compiled, copy = (Path(importlib.util.cache_from_source(path)) for path in (source, target))
        if compiled.exists():
            copy.parent.mkdir(exist_ok=True)
            os.link(compiled, copy)
