"""The sockets by which a relay (bundle_door.relay) hands on what comes to its ports: each container
with a server has a folder in the one that they share, and a link there names the one that serves.

    python -m bundle_serving.process.relayed /run/ports     from now on, that is this container
"""

import socket
import sys
from pathlib import Path

from bundle_serving.process import sockets

HTTP, GRPC, METRICS = "http", "grpc", "metrics"
SERVING = "serving"


def folder(shared: Path) -> Path:
    return shared / socket.gethostname()


def prepare(shared: Path) -> Path:
    """Nobody else can reach what is in it."""
    own = folder(shared)
    own.mkdir(mode=0o700, exist_ok=True)
    return own


def is_held(shared: Path) -> bool:
    """Whether another server has the ports."""
    serving = (shared / SERVING).resolve()
    return serving != folder(shared).resolve() and sockets.is_listening(serving / HTTP)


def take(shared: Path) -> None:
    """All ports at once: each connection that comes from now on is this server's."""
    link = shared / f".{SERVING}-{socket.gethostname()}"
    link.unlink(missing_ok=True)
    link.symlink_to(folder(shared).name)
    link.replace(shared / SERVING)


if __name__ == "__main__":
    take(Path(sys.argv[1]))
