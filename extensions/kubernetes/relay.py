"""This machine's way to the pods, which need not be reached from outside their cluster: its ports
lead to those that are ready, each connection to the one that has the fewest.

    python -m extensions.kubernetes.relay NAMESPACE CONTEXT HTTP_PORT GRPC_PORT FILE

`kubectl port-forward` goes to each pod; FILE says on which port here. It ends when it is told to.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from extensions.kubernetes import pods
from extensions.kubernetes.kubectl import Kubectl, Object, read_all
from scripts.base import files

HOST = "127.0.0.1"
HTTP, GRPC = 8000, 8001
OPENED = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)")
AGAIN_S = 1.0
CHUNK = 1 << 16


@dataclass
class Relay:
    kubectl: Kubectl
    file: Path
    ready: set[str] = field(default_factory=set)
    # Of each pod, the ports here that lead to its own.
    forwarded: dict[str, dict[int, int]] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        command = self.kubectl.command(
            *("get", "pods", f"--selector={pods.SELECTOR}", "--watch", "--output-watch-events"),
            "--output=json",
        )
        while True:
            # A watch begins with all that are there.
            for name in [*self._tasks]:
                await self._see_again(name)
            watching = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
            assert watching.stdout
            text = ""
            try:
                while chunk := await watching.stdout.read(CHUNK):
                    events, text = read_all(text + chunk.decode(errors="replace"))
                    for event in events:
                        self._note(event["type"], event["object"])
            finally:
                with suppress(ProcessLookupError):
                    watching.kill()
                await watching.wait()
            await asyncio.sleep(AGAIN_S)

    async def _see_again(self, name: str) -> None:
        """One that went while nobody watched."""
        command = self.kubectl.command("get", "pod", name, "--output=name", "--ignore-not-found")
        asked = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        found, _ = await asked.communicate()
        if asked.returncode == 0 and not found.strip():
            self._forget(name)

    def _note(self, event: str, pod: Object) -> None:
        if event == "ERROR":  # of the watch, which ends with it: nothing of a pod
            return
        name = pod["metadata"]["name"]
        (self.ready.add if pods.is_ready(pod) else self.ready.discard)(name)
        if event == "DELETED" or pods.is_over(pod):
            self._forget(name)
        elif name in self.ready and name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._forward(name))

    def _forget(self, name: str) -> None:
        self.ready.discard(name)
        if task := self._tasks.pop(name, None):
            task.cancel()

    async def _forward(self, name: str) -> None:
        """Until the pod is over or gone: also while it ends, and answers what it has."""
        command = self.kubectl.command("port-forward", f"pod/{name}", f":{HTTP}", f":{GRPC}")
        while True:
            kubectl = await asyncio.create_subprocess_exec(
                *command, f"--address={HOST}", stdout=asyncio.subprocess.PIPE
            )
            assert kubectl.stdout
            try:
                opened = dict[int, int]()
                async for line in kubectl.stdout:
                    if found := OPENED.search(line):
                        opened[int(found[2])] = int(found[1])
                        if opened.keys() == {HTTP, GRPC}:
                            self.forwarded[name] = opened
                            self._changed.set()
            finally:
                self.forwarded.pop(name, None)
                self._changed.set()
                with suppress(ProcessLookupError):
                    kubectl.kill()
                await kubectl.wait()
            await asyncio.sleep(AGAIN_S)

    async def write(self) -> None:
        """For commands; requests go on without it."""
        while True:
            noted = {"pid": os.getpid(), "pods": self.forwarded}
            try:
                files.write(self.file, json.dumps(noted) + "\n")
            except OSError:  # a full disk, say
                await asyncio.sleep(AGAIN_S)
                continue
            self._changed.clear()
            await self._changed.wait()

    async def serve(self, port: int, inside: int) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = self.ready & self.forwarded.keys()
            if name := min(there, key=lambda each: self.used[each], default=None):
                self.used[name] += 1
                try:
                    await _relay(reader, writer, self.forwarded[name][inside])
                finally:
                    self.used[name] -= 1
            writer.close()

        server = await asyncio.start_server(accept, HOST, port)
        await server.serve_forever()

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    try:
        far_reader, far_writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return
    try:
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        far_writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(CHUNK):
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
            return
    target.close()


async def run(relay: Relay, http: int, grpc: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    serving = relay.serve(http, HTTP), relay.serve(grpc, GRPC)
    running = relay.watch(), relay.write(), *serving, stop.wait()
    tasks = [asyncio.create_task(each) for each in running]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await relay.stop()
    for task in done:
        task.result()


def main(argv: list[str]) -> None:
    namespace, context, http, grpc, file = argv
    relay = Relay(Kubectl(namespace, context), Path(file))
    asyncio.run(run(relay, int(http), int(grpc)))


if __name__ == "__main__":
    main(sys.argv[1:])
