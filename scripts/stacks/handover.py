"""From one server to another without a request lost, which is drained. Local ones listen on the
same ports (SO_REUSEPORT); containers have theirs by a relay (bundle_door.relay)."""

import socket
import time
from contextlib import suppress
from pathlib import Path

import psutil

from bundle_serving.process import sockets
from bundle_serving.process.listeners import choose
from bundle_serving.process.processes import family
from bundle_serving.process.server_log import explain_end
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from scripts.stacks import exposure

# Of what the server that runs has: what must be free for another one.
ROOM = 1.25
# That a handshake takes, and at most that a busy server takes to accept.
HANDSHAKE_S, ACCEPTED_S = 0.3, 5
LISTENS = "0A"
SERVES_ON = "the server from before serves on; make logs shows what the new one said"


def refuse_new(log: str) -> UserError:
    """Where the other server has ended."""
    return UserError(f"the new server stopped during its start: {explain_end(log)}", SERVES_ON)


def obstacle(settings: Settings, its: Settings, pid: int) -> str | None:
    """Why another server cannot come up beside the one with this process, and its settings."""
    shared = {*settings.ports.values()} & {*its.ports.values()}
    for port in shared:
        if not _is_shareable(settings.bind, port):
            return f"port {port} is not to be shared"
    if shared and _access_of(settings) != _access_of(its):
        return "they differ in BIND, INSECURE or TLS_CERT"
    return explain_memory(_memory(pid))


def _is_shareable(address: str, port: int) -> bool:
    """Whether another server of this user may listen there beside the one that does."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _access_of(settings: Settings) -> tuple[str, bool, bool]:
    """How its ports are: who asks at one must not come to a server where they are otherwise. To a
    certain address and to any, connections are not shared out."""
    exposed = exposure.exposure_of(settings)
    return settings.bind, bool(exposed.certificate), bool(exposed.api_keys)


def explain_memory(taken: int) -> str | None:
    """Why no other server fits beside one that has taken so much."""
    needed, free = ROOM * taken, psutil.virtual_memory().available
    if needed > free:
        return f"two need {needed / 1e9:.1f} GB of memory more, and {free / 1e9:.1f} GB are free"
    return None


def _memory(pid: int) -> int:
    taken = 0
    for process in family(pid):
        with suppress(psutil.Error):
            taken += psutil.Process(process.pid).memory_full_info().pss
    return taken


def is_open(settings: Settings, pid: int) -> bool:
    """Whether this server listens on its ports, perhaps beside others."""
    opened: set[int] = set()
    for process in family(pid):
        if process.name == "envoy":
            with suppress(psutil.Error):
                found = psutil.Process(process.pid).net_connections("tcp")
                opened |= {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}
    return {*settings.ports.values()} <= opened


def drain_local(run_dir: Path, settings: Settings) -> None:
    """New connections come to the other server from now on; those that are open end with their next
    answer."""
    from bundle_serving import drain  # which loads asyncio

    with suppress(OSError, sockets.NotPrivate):  # its door does not run
        listeners = drain.count_threads(run_dir)  # of each port: Envoy's threads have one each
        for port in settings.ports.values():
            give_to_second(settings.bind, port, listeners)
        drain.announce_end(run_dir)
        drain.close_ports(run_dir)
        drain.wait_for_end(run_dir)


def give_to_second(address: str, port: int, listeners: int) -> None:
    """Of two servers that share it, the one that listens later gets every new connection, and the
    first one, with so many listeners, accepts what has come to it: the kernel would end that with
    them."""
    with suppress(OSError):  # the kernel cannot, and decides by itself
        _choose(address, port, listeners)
    time.sleep(HANDSHAKE_S)
    deadline = time.monotonic() + ACCEPTED_S
    while _has_waiting(port) and time.monotonic() < deadline:
        time.sleep(0.01)


def _choose(address: str, port: int, number: int) -> None:
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(kind) as probe, socket.socket(kind) as third:
        for each in (probe, third):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if kind == socket.AF_INET6:  # as Envoy's
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        choose(probe, number)  # whether this kernel can: the third one listens with the others
        third.bind((address, port))
        third.listen()
        choose(third, number)


def _has_waiting(port: int) -> bool:
    """Whether a listener there has connections to accept."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(FileNotFoundError):  # no IPv6 here
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, queues, *_ = line.split()
                waiting = int(queues.split(":")[1], 16)
                if state == LISTENS and local.endswith(f":{port:04X}") and waiting:
                    return True
    return False
