"""Checks that the repository on S3 is reachable and that both keys have the right permissions.

    make s3-check REPOSITORY=s3://bucket/path [S3_SERVER_CREDENTIALS=FILE]

Reports the cause in one line, where Triton has the same message for every problem.
"""

from extensions.s3 import check
from extensions.s3.location import EXAMPLES, from_settings
from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings.settings import Settings


def main() -> None:
    settings = Settings.load()
    location = from_settings(settings)
    if location is None:
        raise UserError("REPOSITORY is not set", f"set it: {EXAMPLES}")
    with console.waiting(f"asking {location}"):
        check.examine(location, settings)
