"""Where connections wait while the door is started again, which otherwise would be refused: its
ports are kept open, and what has come is led to the new door.

By copies of the door's own listeners, where the system allows them: then also who came to the old
door, and was not accepted yet, is led to the new one. Else by others, which are behind the door's:
of two listeners at an address of IPv4, one of which is a socket of IPv6 (::ffff:127.0.0.1), the
kernel asks the other one (soreuseport: "fix ordering for mixed v4/v6 sockets", Linux 4.6).

    python -m bundle_keeper.waiting_room FOLDER ADDRESS FILE…

leads on, byte for byte, who came to the listeners that it inherits as files; FOLDER has the door's
sockets. It is a process of its own, for what it leads lasts longer than a keeper may: it ends with
its last connection, and stops waiting for others when it is told to (SIGTERM).
"""

import asyncio
import os
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bundle_keeper.children import Child
from bundle_serving.process import sockets
from bundle_serving.process.listeners import choose, copy_listeners
from bundle_serving.protocol import local_http

MODULE = "bundle_keeper.waiting_room"
# Whether Envoy's threads have their listeners, and how many of those it has stopped.
STARTED, STOPPED = "workers_started", "listener_stopped"
ABOUT_LISTENERS = f"/stats?filter=^listener_manager.({STARTED}|{STOPPED})$"
LOOK_S, LONGEST_S = 0.05, 300
# A handshake may take a while.
LATER_S = 5
PIECE = 1 << 16
MOST_WAITING = 4096
# Until the sockets of a process that was killed are gone: who is refused once, such as a channel of
# gRPC, waits for a second before it asks again.
TRIES, PAUSE_S = 1000, 0.001


class WaitingRoom:
    def __init__(self, address: str, ports: Sequence[int], folder: Path) -> None:
        """Ports that are 0 are not opened; `folder` has the door's sockets."""
        self._address, self._folder = address, folder
        self._ports = [port for port in ports if port]
        self._is_behind = ":" not in address and socket.has_dualstack_ipv6()
        self._own: list[socket.socket] = []
        # Copies of the listeners of the door that serves, and of those that have ended.
        self._copies: list[socket.socket] = []
        self._left: list[socket.socket] = []
        # Those to which a process that leads on has its own way.
        self._handed_on: list[socket.socket] = []
        self._has_opened = False
        self._leading: list[Child] = []

    @property
    def leading(self) -> list[int]:
        """The processes that do."""
        self._leading = [each for each in self._leading if each.runs]
        return [each.pid for each in self._leading]

    def resume(self) -> None:
        """What an earlier keeper, which was killed, has handed on: to the program that is given
        this folder, whatever its release called it."""
        known, folder = set(), str(self._folder)
        for process in Child.find_all_running(lambda each: folder in each.arguments):
            self._leading.append(process)
            for each in copy_listeners(process.pid, self._ports):
                if (number := os.fstat(each.fileno()).st_ino) in known:
                    each.close()
                    continue
                known.add(number)
                is_own = self._is_behind and each.family == socket.AF_INET6
                (self._own if is_own else self._left).append(each)

    def keep(self, envoy: int) -> None:
        """What comes to the listeners of this process."""
        self._copies = copy_listeners(envoy, self._ports)

    async def hold(self) -> None:
        """As soon as the door's end is seen. Of IPv6, not a port that is another's by now, such as
        of the server that follows this one."""
        self._left += self._copies
        self._copies, self._has_opened = [], False
        self._prefer_next()
        for port in self._find_closed():
            for _ in range(TRIES):
                with suppress(OSError):
                    self._listen(port, is_shared=False).close()
                    self._own.append(self._listen(port))
                    break
                await asyncio.sleep(PAUSE_S)
        self._prefer_next()
        self._hand_on()

    async def look(self) -> None:
        """At whether the door listens. Not at the ports of one that has closed them, as it does for
        a server that follows it."""
        if (closed := await count_closed(self._folder)) is None:
            return
        if closed:
            self.close()
            return
        self._handed_on.clear()
        if self._has_opened:
            _close(self._left)
        self._has_opened = True
        if not self._is_behind:
            _close(self._own)
            return
        for port in self._find_closed():
            with suppress(OSError):
                self._own.append(self._listen(port))

    def close(self) -> None:
        for each in (self._own, self._copies, self._left):
            _close(each)
        self._handed_on.clear()
        for pid in self.leading:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _hand_on(self) -> None:
        """To a process of its own: what it leads is not to end with the keeper."""
        new = [each for each in (*self._left, *self._own) if each not in self._handed_on]
        if not new:
            return
        files = [each.fileno() for each in new]
        options = (str(self._folder), self._address, *map(str, files))
        self._leading.append(Child.start(MODULE, *options, files=files))
        self._handed_on += new

    def _prefer_next(self) -> None:
        """Of those that share a port, the first of the next door's."""
        sharing = self._left if self._is_behind else [*self._left, *self._own]
        counts = Counter(map(_port_of, sharing))
        for each in sharing:
            with suppress(OSError):
                choose(each, counts[_port_of(each)])

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


def _port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def _close(listening: list[socket.socket]) -> None:
    for each in listening:
        each.close()
    listening.clear()


async def count_closed(folder: Path) -> int | None:
    """Of the door's ports, which it closes for a server that follows it; None where it does not
    listen yet."""
    try:
        told = await local_http.ask(folder / sockets.ENVOY_ADMIN, "GET", ABOUT_LISTENERS)
    except (OSError, ValueError):
        return None
    counts = dict(re.findall(r"\.(\w+): (\d+)", told.decode()))
    return int(counts[STOPPED]) if counts.get(STARTED) == "1" else None


class Leading:
    def __init__(self, folder: Path, address: str, listening: Sequence[socket.socket]) -> None:
        self._folder, self._address, self._listening = folder, address, listening
        self._led: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        waiting = asyncio.create_task(self._wait_for_door())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, waiting.cancel)
        await asyncio.wait((waiting,))
        for each in self._listening:
            each.close()
        while self._led:
            await asyncio.wait(self._led)

    async def _wait_for_door(self) -> None:
        """Who has come before it listened is led on, and for a while who comes later."""
        now = asyncio.get_running_loop().time
        until = now() + LONGEST_S
        listens = False
        while now() < until:
            closed = await count_closed(self._folder)
            if closed:
                return
            if closed == 0:
                until, listens = until if listens else now() + LATER_S, True
                self._accept()
            await asyncio.sleep(LOOK_S)

    def _accept(self) -> None:
        for each in self._listening:
            with suppress(OSError):
                while True:
                    leading = asyncio.create_task(
                        _lead_on(each.accept()[0], self._address, each.getsockname()[1])
                    )
                    self._led.add(leading)
                    leading.add_done_callback(self._led.discard)


async def _lead_on(client: socket.socket, address: str, port: int) -> None:
    client.setblocking(False)
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


def main(folder: str, address: str, *files: str) -> None:
    listening = [socket.socket(fileno=int(file)) for file in files]
    asyncio.run(Leading(Path(folder), address, listening).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
