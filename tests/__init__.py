"""Before anything is imported that reads it: what the checkout's .env says, what is in its own/,
and what it serves as its main pipeline, changes no result."""

import os
from pathlib import Path

from scripts.base import paths

paths.DOTENV = Path(os.devnull)
paths.FOLDER = paths.ROOT / "build" / "tests"

from scripts.recipes import pipelines  # noqa: E402  reads them as it is imported

pipelines.NOTE = Path(os.devnull)
