"""The textbook pipeline, served beside whatever else is up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bundle_serving.process import main_pipeline
from scripts.base.paths import ROOT
from scripts.measuring.textbook.layout import lay_out
from scripts.server.served import find_served_version
from scripts.stacks import temporary

HERE = ROOT / "build" / "rivals"


@contextmanager
def serve_textbook() -> Iterator[tuple[str, str]]:
    """Where it is asked over HTTP and gRPC, until the block ends."""
    repository = HERE / "textbook"
    lay_out(find_served_version().workspace.onnx, repository)
    log = HERE / "logs" / "textbook.log"
    with temporary.triton("the textbook server", repository, log, main_pipeline.DEFAULT) as at:
        yield at
