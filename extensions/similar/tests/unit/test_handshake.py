"""An instance that asks the first one of its model, by PyTriton's own function, too early."""

import json
import socket
import threading
import time
from pathlib import Path

from pytriton.proxy.communication import get_config_from_handshake_server

from extensions.similar.serving.handshake import patient

CONFIG = {"data_socket": "embedding-data.sock", "authkey": "a2V5"}
LATE_S = 0.2  # another time, after which the next thing is there


def late(path: Path) -> None:
    """It is bound, listens later, hangs up on the first who asks, and then answers."""
    answer = json.dumps(CONFIG).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        time.sleep(LATE_S)
        server.listen()
        server.accept()[0].close()
        asked, _ = server.accept()
        with asked:
            asked.recv(64)
            asked.sendall(len(answer).to_bytes(4, "big") + answer)


def test_it_asks_until_it_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "embedding-config.sock"
    first = threading.Thread(target=late, args=(path,), daemon=True)
    first.start()
    assert patient(get_config_from_handshake_server)(path) == CONFIG
    first.join()
