"""How the instances of a PyTriton model get their shared settings from the first one.

They all start at the same time, and PyTriton gives the first one a second to create its socket, to
listen and to answer. On a busy machine each of these took longer, and nothing came up ("Model
initialize error"). So here the other instances retry.
"""

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
    def ask_patiently(socket: Path) -> dict[str, Any]:
        deadline = time.monotonic() + LONGEST_S
        while True:
            try:
                return ask(socket)
            except (OSError, ValueError):  # no socket yet, nobody listening, or disconnected
                if time.monotonic() > deadline:
                    raise
                time.sleep(AGAIN_S)

    return ask_patiently
