"""Where the servers of this checkout run: a namespace of a cluster. As long as they do, commands go
there and nowhere else."""

import json

from extensions.kubernetes import settings as own
from extensions.kubernetes.kustomization import FLAVOUR
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.settings.settings import Settings
from scripts.stacks import state

# Beside what runs there: also of a start that ended half way.
NOTE = ROOT / "build" / "cluster" / "where.json"
NAMES = (own.namespace.name, own.context.name)


def note(settings: Settings) -> None:
    files.write(NOTE, json.dumps({name: settings[name] for name in NAMES}) + "\n")


def settle(settings: Settings) -> Settings:
    """There, which the user may also say, but nowhere else."""
    there, now = _read(), Settings.load()
    for name, known in there.items():
        if name in now.given and now[name] != known:
            raise UserError(
                f"servers run with {name}={known}, and {name}={now[name]} is given",
                f"omit it; or make down {name}={known} ends them first",
            )
    return settings.replace_with(**there) if there else settings


def _read() -> dict[str, str]:
    """Empty where nothing runs."""
    if noted := files.read_json(NOTE):
        return noted
    known = state.load()  # bundles before noted it there alone
    if known is None or known.flavour != FLAVOUR:
        return {}
    return {name: known.settings_at_start[name] for name in NAMES}
