"""Leads who came while nobody listened to the door that listens next, byte for byte.

    python -m bundle_keeper.leading FOLDER ADDRESS FILE…

The listeners at which they came are files that it inherits; FOLDER has the door's sockets. It is a
process of its own, for what it leads lasts longer than a keeper may: it ends with its last
connection, and stops waiting for others when it is told to (SIGTERM).
"""

import asyncio
import re
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bundle_serving.process import sockets
from bundle_serving.protocol import local_http

MODULE = "bundle_keeper.leading"
# Whether Envoy's threads have their listeners, and how many of those it has stopped.
STARTED, STOPPED = "workers_started", "listener_stopped"
ABOUT_LISTENERS = f"/stats?filter=^listener_manager.({STARTED}|{STOPPED})$"
LOOK_S, LONGEST_S = 0.05, 300
# A handshake may take a while.
LATER_S = 5
PIECE = 1 << 16


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
