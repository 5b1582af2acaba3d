"""How the instances of a PyTriton model learn from the first one what they share.

They all start at the same time, and PyTriton gives the first one a second: to be there, to listen
where its socket already is, and to answer. On a busy machine each of the three took longer, and
then nothing came up ("Model initialize error"). So here the others ask again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST_S = 60
AGAIN_S = 0.05

# Appended to PyTriton's file that every instance imports.
IN_AN_INSTANCE = f"""

from {__name__} import patient
get_config_from_handshake_server = patient(get_config_from_handshake_server)
"""

Ask = Callable[[Path], dict[str, Any]]


def patient(ask: Ask) -> Ask:
    def asked(socket: Path) -> dict[str, Any]:
        deadline = time.monotonic() + LONGEST_S
        while True:
            try:
                return ask(socket)
            except (OSError, ValueError):  # nobody there, nobody listens, or hung up on
                if time.monotonic() > deadline:
                    raise
                time.sleep(AGAIN_S)

    return asked
