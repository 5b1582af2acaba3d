"""What its commands are given."""

from scripts.base.errors import UserError
from scripts.settings import arguments
from scripts.settings.setting import text

passphrase = text("", "Encrypts the keys in a backup.")


def load_passphrase() -> str:
    """Only from the environment."""
    if passphrase.name in arguments.list_typed():
        raise UserError(
            "everybody on this machine can see PASSPHRASE on the command line",
            "give it in the environment: export PASSPHRASE",
        )
    return passphrase.value_in(arguments.load())
