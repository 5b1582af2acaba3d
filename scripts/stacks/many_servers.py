"""Several servers on the nodes of an engine: what commands ask of an extension's stack."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bundle_serving.address import Address
from scripts.stacks.containers import DockerStack
from scripts.stacks.state import State

SERVER = "server"
USUAL_REPLICAS = 2
# A server that hangs at its start is ended, and another one started.
TRIES = 2
STAYED = "the servers from before serve on; see make logs"


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


class ManyServers(DockerStack):
    """Steps run on this machine, as with Docker alone."""

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
        """So many servers besides; the others stay, and what is noted too. The first that does not
        start ends it."""

    @abstractmethod
    def go_back(self, known: State, out_first: bool = False) -> None:
        """To what ran before, wherever an update was interrupted; `out_first` where nobody is to
        wait for a server that replaces one that fails."""

    @abstractmethod
    def scale(self, known: State, replicas: int) -> None: ...

    @abstractmethod
    def find_address(self, known: State, address: str) -> Address:
        """Where this one alone is asked; OSError where it is not reached."""

    @abstractmethod
    def show(self) -> None:
        """Where they run, and what is wrong there."""

    def alive(self, service: str = SERVER) -> bool:
        return any(task.runs for task in self.servers())

    def there(self) -> bool:
        return bool(self.servers())

    def keeper_state(self) -> dict[str, Any]:
        """A server is ready if its keeper says so, and no other is asked."""
        return {"ready": True}

    def memory(self) -> None:
        return None

    def root(self) -> None:
        return None
