"""Several servers on the nodes of an engine: what commands ask of an extension's stack."""

import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bundle_serving.address import Address
from scripts.base import console, files, tables
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from scripts.stacks import state
from scripts.stacks.containers import DockerStack
from scripts.stacks.state import State

SERVER = "server"
USUAL_REPLICAS = 2
# A server that hangs at its start is ended, and another one started.
TRIES = 2
LOG_S = 20
# Servers, where nobody says what the nodes have.
MOST = 100


@dataclass(frozen=True)
class Task:
    """A server or balancer on a node, as the manager last heard of it."""

    id: str
    name: str
    node: str
    state: str
    fingerprint: str
    error: str
    # As `find_address` knows this one.
    address: str
    # Whether it is asked.
    runs: bool
    # Where other servers ask it, over gRPC.
    beside: str = ""


@dataclass(frozen=True)
class Progress:
    came: int
    wanted: int
    is_settled: bool
    note: str = ""


@dataclass(frozen=True)
class Room:
    """What the nodes have, and each server asks for; the words for it."""

    where: str
    nodes: Sequence[Mapping[str, Decimal]]
    asked: Mapping[str, Decimal]
    servers: str
    lower: str

    def count(self) -> int:
        """If nothing else were there."""
        return sum(
            min(int(node[what] / amount) for what, amount in self.asked.items() if amount)
            for node in self.nodes
        )


def require_room(replicas: int, most: int | None, find: Callable[[], Room | None]) -> None:
    """`most`: what the user says."""
    remedy = f"MAX_REPLICAS={replicas}, if it is meant"
    if most is None and (room := find()):
        most = room.count()
        if replicas > most:
            nodes = f"{len(room.nodes)} node{'s' * (len(room.nodes) != 1)}"
            raise UserError(
                f"REPLICAS={replicas}, and the {room.where} has {nodes} with room for {most} "
                f"{room.servers}",
                f"add nodes, or lower {room.lower}; {remedy}",
            )
    if replicas > (most := MOST if most is None else most):
        raise UserError(f"REPLICAS={replicas} is more than {most}", remedy)


def describe_stay() -> str:
    """After a start in vain."""
    return f"{'the servers from before serve on; ' if state.load() else ''}see make logs"


class ManyServers(DockerStack):
    """Steps run on this machine, as with Docker alone."""

    def prepare(self) -> None:
        if self._settings.replicas == 0:
            remedy = "say how many: make scale REPLICAS=2" if state.load() else "give REPLICAS=2"
            raise UserError("with REPLICAS=0 no server runs", remedy)
        super().prepare()

    def _require_room(self, replicas: int) -> None:
        """By what the user sets now, or did when they were started."""
        now = Settings.load().fill_from(self._settings.values)
        require_room(replicas, now.max_replicas, self._find_room)

    @abstractmethod
    def _find_room(self) -> Room | None:
        """None where nobody may see the nodes."""

    @property
    @abstractmethod
    def replicas(self) -> int | None:
        """How many there should be."""

    @abstractmethod
    def servers(self) -> list[Task]: ...

    @abstractmethod
    def replace_each(self, wanted: State) -> Iterator[Task]:
        """One server after the other by one that `start` would start, which comes out here when it
        runs. The next is replaced when it is asked for, and not at all if it is not."""

    @abstractmethod
    def try_out(self, wanted: State, count: int) -> None:
        """So many servers besides, which none but the others ask; these stay, and what is noted
        too. The first that does not start ends it."""

    @abstractmethod
    def go_back(self, known: State, out_first: bool = False) -> None:
        """To what ran before, wherever an update was interrupted; `out_first` where nobody is to
        wait for a server that replaces one that fails."""

    @abstractmethod
    def start_or_stop(self, known: State, replicas: int) -> None: ...

    @abstractmethod
    def find_address(self, known: State, address: str) -> Address:
        """Where this one alone is asked; OSError where it is not reached."""

    @abstractmethod
    def show(self) -> None:
        """Where they run, and what is wrong there."""

    @abstractmethod
    def log_process(self, follow: bool) -> subprocess.Popen[str]:
        """Of all; each line begins with whose it is."""

    @abstractmethod
    def look(self, fingerprint: str) -> Progress:
        """How many have come of these, after `start` and its like; what will not come is an
        error."""

    @abstractmethod
    def require_hope(self, fingerprint: str) -> None:
        """That one more of these comes."""

    @abstractmethod
    def explain(self, fingerprint: str) -> str:
        """Why one of these does not start."""

    @abstractmethod
    def read_log(self, fingerprint: str) -> str:
        """What these have said, also those that have ended."""

    def keep_log(self, fingerprint: str) -> None:
        """For `make logs`, when they are gone."""
        if said := self.read_log(fingerprint):
            files.write_private(state.REFUSED, said)

    def refuse(self, fingerprint: str, what: str = "a server does not start") -> UserError:
        self.keep_log(fingerprint)
        return UserError(f"{what}: {self.explain(fingerprint)}", describe_stay())

    def find_serving(self, fingerprint: str) -> list[Task]:
        return [task for task in self.servers() if task.runs and task.fingerprint == fingerprint]

    def wait_until_settled(self, fingerprint: str) -> None:
        """A server that takes too long ends it; each that comes gives the next one its time."""
        limit, came, since = TRIES * self._settings.start_timeout, -1, time.monotonic()
        with console.waiting("starting servers, one after the other") as waiting:
            while not (now := self.look(fingerprint)).is_settled:
                if now.came != came:
                    came, since = now.came, time.monotonic()
                if time.monotonic() - since > limit:
                    so_many = f"{came} of {now.wanted} servers answer after {limit:.0f} s"
                    raise UserError(
                        f"{so_many}: {self.explain(fingerprint)}",
                        "see make logs; on slow machines, raise START_TIMEOUT",
                    )
                waiting.show(f"{came} of {now.wanted}{now.note}")
                time.sleep(0.5)

    def wait_for_more(self, fingerprint: str, came: Collection[str], count: int = 1) -> Task:
        """The first of so many that are none of those that came."""
        limit = TRIES * self._settings.start_timeout
        with console.waiting(f"starting server {len(came) + 1} with the new version") as waiting:
            while True:
                fresh = [task for task in self.find_serving(fingerprint) if task.id not in came]
                if len(fresh) >= count:
                    return fresh[0]
                self.require_hope(fingerprint)
                if waiting.seconds > limit:
                    raise self.refuse(fingerprint)
                time.sleep(0.5)

    def log(self, service: str = SERVER) -> str:
        process = self.log_process(follow=False)
        try:
            return process.communicate(timeout=LOG_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return ""

    def alive(self, service: str = SERVER) -> bool:
        return any(task.runs for task in self.servers())

    def there(self) -> bool:
        return bool(self.servers())

    def keeper_state(self) -> dict[str, Any]:
        """A server is ready if its keeper says so, and no other is asked."""
        return {"ready": True}

    def memory(self) -> None:
        return None


def show_tasks(where: str, tasks: Collection[Task], problems: Collection[str]) -> None:
    rows = [(task.name, task.node, task.state, task.error) for task in tasks]
    tables.show("llll", (f"on the {where}", "node", "state", ""), rows)
    for problem in problems:
        console.note(f"warning: {problem}")
