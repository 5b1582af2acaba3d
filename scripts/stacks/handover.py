"""From one server to another without a request lost, which is drained. Local ones listen on the
same ports (SO_REUSEPORT); containers have theirs by a relay (bundle_door.relay)."""

from contextlib import suppress
from pathlib import Path

import psutil

from bundle_serving.process import sockets
from bundle_serving.process.processes import family
from bundle_serving.process.server_log import explain_end
from scripts.base import ports
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from scripts.stacks import exposure

# Of what the server that runs has: what must be free for another one.
ROOM = 1.25
SERVES_ON = "the server from before serves on; make logs shows what the new one said"


def refuse_new(log: str) -> UserError:
    """Where the other server has ended."""
    return UserError(f"the new server stopped during its start: {explain_end(log)}", SERVES_ON)


def obstacle(settings: Settings, its: Settings, pid: int) -> str | None:
    """Why another server cannot come up beside the one with this process, and its settings."""
    shared = {*settings.ports.values()} & {*its.ports.values()}
    for port in shared:
        if not ports.is_shareable(settings.bind, port):
            return f"port {port} is not to be shared"
    if shared and _access_of(settings) != _access_of(its):
        return "they differ in BIND, INSECURE or TLS_CERT"
    return explain_memory(_memory(pid))


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
            ports.give_to_second(settings.bind, port, listeners)
        drain.announce_end(run_dir)
        drain.close_ports(run_dir)
        drain.wait_for_end(run_dir)
