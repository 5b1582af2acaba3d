"""Can the repository on S3 be reached, and may both keys do there what they must?

    make s3-check REPOSITORY=s3://bucket/path [S3_SERVER_CREDENTIALS=FILE]

One line says what is wrong, where Triton would say the same of everything.
"""

from __future__ import annotations

from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings import settings
from scripts.storage import check
from scripts.storage.location import EXAMPLES, wished


def main() -> int:
    wished_for = settings.load()
    location = wished(wished_for)
    if location is None:
        raise UserError("REPOSITORY is not set", f"name the place: {EXAMPLES}")
    with console.waiting(f"asking {location}"):
        check.examine(location, wished_for)
    return 0
