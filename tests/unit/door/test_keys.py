"""Who may ask, by a file of keys that is read again when it has changed."""

import asyncio
import resource
from pathlib import Path

import pytest

from bundle_door.access import key_file
from bundle_door.access.key_file import Client
from bundle_door.access.keys import Keys
from bundle_door.answers import Refused


def test_who_was_revoked_stays_out_though_the_file_could_not_be_read_at_once(
    tmp_path: Path,
) -> None:
    """As with more connections than the process may have open files."""
    ann = f"Bearer {key_file.add(file := tmp_path / 'api.keys', Client('ann'))}"
    keys = Keys(file, None)
    asyncio.run(keys.admit(ann))
    key_file.revoke(file, "ann")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with asyncio.Runner() as runner:  # which needs files of its own
        runner.get_loop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            runner.run(keys.admit(ann))  # as it was known
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with pytest.raises(Refused, match="no valid API key"):
            runner.run(keys.admit(ann))
