"""Before anything is imported that reads it: what the checkout's .env says, and what is in its
own/, changes no result."""

import os
from pathlib import Path

from scripts.base import paths

paths.DOTENV = Path(os.devnull)
paths.FOLDER = paths.ROOT / "build" / "tests"
