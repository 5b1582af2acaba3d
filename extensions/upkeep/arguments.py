"""What its commands are given."""

import os

from scripts.base.errors import UserError
from scripts.settings import arguments
from scripts.settings.setting import text

MOST = 1023  # bytes of a passphrase, as openssl takes it
passphrase = text("", "Encrypts the keys in a backup.")


def load_passphrase() -> str:
    """Only from the environment."""
    if passphrase.name in arguments.list_typed():
        raise UserError(
            "everybody on this machine can see PASSPHRASE on the command line",
            "give it in the environment: export PASSPHRASE",
        )
    given = passphrase.value_in(arguments.load())
    if "\n" in given or len(os.fsencode(given)) > MOST:
        raise UserError(
            f"of PASSPHRASE, openssl reads the first line alone, and {MOST} bytes of it",
            "give that part alone, which opens earlier backups, too",
        )
    return given
