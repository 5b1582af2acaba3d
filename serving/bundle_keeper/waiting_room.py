"""Where connections wait while the door is started again, which otherwise would be refused: its
ports are kept open, and what has come is led to the new door, byte for byte."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

MOST_WAITING = 4096
PIECE = 1 << 16
# Until the sockets of a process that was killed are gone: who is refused once, such as a channel of
# gRPC, waits for a second before it asks again.
TRIES, PAUSE_S = 1000, 0.001


class WaitingRoom:
    def __init__(self, address: str, ports: Sequence[int]) -> None:
        """Ports that are 0 are not opened."""
        self._address = address
        self._ports = [port for port in ports if port]
        self._open: dict[int, socket.socket] = {}
        self._leading: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Not a port that is another's by now, such as of the server that follows this one."""
        for port in self._ports:
            if port in self._open:
                continue
            for _ in range(TRIES):
                with suppress(OSError):
                    self._listen(port, is_shared=False).close()
                    self._open[port] = self._listen(port, is_shared=True)
                    break
                await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """Once the door listens."""
        for port, listening in self._open.items():
            with listening, suppress(BlockingIOError):
                while True:
                    self._lead(listening.accept()[0], port)
        self._open = {}

    def _listen(self, port: int, is_shared: bool) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
            listening.setblocking(False)
            listening.bind((self._address, port))
            if is_shared:
                listening.listen(MOST_WAITING)
        except OSError:
            listening.close()
            raise
        return listening

    def _lead(self, client: socket.socket, port: int) -> None:
        client.setblocking(False)
        leading = asyncio.create_task(_lead_on(client, self._address, port))
        self._leading.add(leading)
        leading.add_done_callback(self._leading.discard)


async def _lead_on(client: socket.socket, address: str, port: int) -> None:
    with suppress(OSError):
        # To an address of any kind the system connects as to its own.
        door = await asyncio.open_connection(address, port)
        here = await asyncio.open_connection(sock=client)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass_on(here[0], door[1]))
                both.create_task(_pass_on(door[0], here[1]))
        except* OSError:  # either has hung up
            pass
        finally:
            door[1].close()
            here[1].close()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE):
        sink.write(piece)
        await sink.drain()
    sink.write_eof()
