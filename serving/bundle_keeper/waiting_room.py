"""Where connections wait while the door is started again, which otherwise would be refused: its
ports are kept open, and what has come is led to the new door, byte for byte.

By copies of the door's own listeners, where the system allows them: then also who came to the old
door, and was not accepted yet, is led to the new one. Else by others, which are behind the door's:
of two listeners at an address of IPv4, one of which is a socket of IPv6 (::ffff:127.0.0.1), the
kernel asks the other one (soreuseport: "fix ordering for mixed v4/v6 sockets", Linux 4.6).
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from bundle_serving.process.listeners import choose, copy_listeners

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
        self._is_behind = ":" not in address and socket.has_dualstack_ipv6()
        self._own: list[socket.socket] = []
        # Copies of the listeners of the door that serves, and of those that have ended.
        self._copies: list[socket.socket] = []
        self._left: list[socket.socket] = []
        self._has_led = False
        self._leading: set[asyncio.Task[None]] = set()

    def keep(self, envoy: int) -> None:
        """What comes to the listeners of this process."""
        self._copies = copy_listeners(envoy, self._ports)

    async def hold(self) -> None:
        """As soon as the door's end is seen. Of IPv6, not a port that is another's by now, such as
        of the server that follows this one."""
        self._left += self._copies
        self._copies, self._has_led = [], False
        counts = Counter(map(_port_of, self._left))
        for each in self._left:
            with suppress(OSError):
                choose(each, counts[_port_of(each)])  # the first of the next door's
        for port in self._find_closed():
            for _ in range(TRIES):
                with suppress(OSError):
                    self._listen(port, is_shared=False).close()
                    self._own.append(self._listen(port))
                    break
                await asyncio.sleep(PAUSE_S)

    def lead_on(self) -> None:
        """While the door listens, who has come before it did: now, and a little later, since a
        handshake may take a while."""
        for listening in (*self._own, *self._left):
            with suppress(OSError):
                while True:
                    self._lead(listening.accept()[0], _port_of(listening))
        if self._has_led:
            _close(self._left)
        self._has_led = True
        if not self._is_behind:
            _close(self._own)
            return
        for port in self._find_closed():
            with suppress(OSError):
                self._own.append(self._listen(port))

    def close(self) -> None:
        for each in (self._own, self._copies, self._left):
            _close(each)

    def _find_closed(self) -> list[int]:
        opened = {*map(_port_of, (*self._own, *self._left))}
        return [port for port in self._ports if port not in opened]

    def _listen(self, port: int, is_shared: bool = True) -> socket.socket:
        address = f"::ffff:{self._address}" if self._is_behind else self._address
        listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            if self._is_behind:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
            listening.setblocking(False)
            listening.bind((address, port))
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


def _port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def _close(listening: list[socket.socket]) -> None:
    for each in listening:
        each.close()
    listening.clear()


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
