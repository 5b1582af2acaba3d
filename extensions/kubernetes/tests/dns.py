"""A stand-in for a cluster's DNS, which no package brings: addresses of names, and nothing else.

with dns.answering("10.219.0.254", {"triton-bundle.served.svc.cluster.local": …}.get): ...
"""

import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PORT = 53
HEADER = 12
# An answer with authority, as it was asked for; with this too, that there is no such name.
FOUND, NO_SUCH_NAME = 0x8580, 3
# Of a question: an IPv4 address.
ADDRESS = 1
TTL_S = 5


@contextmanager
def answering(host: str, find: Callable[[str], str]) -> Iterator[None]:
    """What `find` says of a name; "" where there is none."""

    class Asked(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            question, caller = self.request
            caller.sendto(answer(question, find), self.client_address)

    with socketserver.ThreadingUDPServer((host, PORT), Asked) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def answer(question: bytes, find: Callable[[str], str]) -> bytes:
    end = question.index(b"\0", HEADER) + 1
    labels, rest = [], question[HEADER : end - 1]
    while rest:
        labels.append(rest[1 : rest[0] + 1].decode(errors="replace"))
        rest = rest[rest[0] + 1 :]
    (kind,) = struct.unpack_from(">H", question, end)
    found = find(".".join(labels).lower())
    flags = FOUND if found else FOUND | NO_SUCH_NAME
    record = b""
    if found and kind == ADDRESS:
        record = b"\xc0\x0c" + struct.pack(">HHIH", ADDRESS, 1, TTL_S, 4) + socket.inet_aton(found)
    counts = struct.pack(">HHHHH", flags, 1, bool(record), 0, 0)
    return question[:2] + counts + question[HEADER : end + 4] + record
