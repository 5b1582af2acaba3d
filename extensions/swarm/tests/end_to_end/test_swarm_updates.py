"""How a swarm of two engines replaces servers, which are no more than a process here: one after the
other, on which nodes, and what becomes of it where one does not start."""

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from bundle_serving.process.main_pipeline import VARIABLE as MAIN
from extensions.swarm import stack as swarm
from extensions.swarm import stack_file
from extensions.swarm.stack import FINGERPRINT, SwarmStack
from extensions.swarm.stack_file import BALANCER, BALANCERS_SETTINGS, SERVER
from extensions.swarm.tests import swarm_nodes
from extensions.swarm.tests.swarm_nodes import Node, join
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from scripts.stacks import state
from scripts.stacks.many_servers import Task
from scripts.stacks.state import State
from tests.plugin import require_docker
from tests.project import run, wait_until

pytestmark = pytest.mark.rare

IMAGE = "debian:bookworm-slim"
NAME = "updates"
WAITS = ["sh", "-c", "echo I am here; trap exit TERM; sleep 1000 & wait"]
ENDS = ["sh", "-c", "echo I cannot go on; sleep 1; exit 1"]
# As Compose resolves compose.yaml, in short.
SERVICE = {
    "image": IMAGE,
    "environment": dict.fromkeys(BALANCERS_SETTINGS, "") | {MAIN: PIPELINE},
    "healthcheck": {"test": ["CMD", "true"]},
    "stop_grace_period": "2s",
    "mem_limit": "100m",
    "pids_limit": 20,
    "shm_size": "1000000",
    "tmpfs": ["/tmp"],
}


@dataclass
class Given:
    """What is deployed next."""

    image: str = IMAGE
    server: tuple[str, ...] = tuple(WAITS)
    balancer: tuple[str, ...] = tuple(WAITS)


class Servers(SwarmStack):
    project = NAME

    def __init__(self, given: Given, proof: Path) -> None:
        super().__init__(Settings.load({}, Path("none")))
        self.given, self.proof = given, proof

    def _place_copy(self, name: str) -> str:
        return name

    def _leave_only(self, name: str) -> None:
        pass

    def _stack_file(self, wanted: State, models: Path | str) -> dict[str, Any]:
        """As for real ones, but for what runs in it."""
        proofs, image = {PIPELINE: self.proof}, self.given.image
        given = stack_file.Given(NAME, image, "", 2, {}, {}, proofs, swarm._owner())
        stack = stack_file.make_stack_file(
            SERVICE | {"labels": {FINGERPRINT: wanted.fingerprint}}, given
        )
        for name, command in {SERVER: self.given.server, BALANCER: self.given.balancer}.items():
            stack["services"][name] |= {"command": [*command]}
            del stack["services"][name]["healthcheck"]
        return stack

    def lie(self, service: str = SERVER) -> Counter[str]:
        return Counter(task.node for task in self.tasks(service) if task.runs)

    def ids(self, service: str = SERVER) -> set[str]:
        return {task.id for task in self.tasks(service) if task.runs}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    require_docker()
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    with swarm_nodes.of(2, tmp_path_factory.mktemp("nodes")) as nodes:
        for node in nodes:
            run("sh", "-c", f"docker save {IMAGE} | docker --host {node.host} load --quiet")
        join(nodes)
        yield nodes


@pytest.fixture(scope="module")
def deployed(nodes: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("checkout")
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("DOCKER_HOST", nodes[0].host)
        as_checkout(changed, folder)
        changed.setattr(State, "save", lambda *_: None)
        changed.setattr(state, "forget", lambda: None)
        changed.setattr(state, "REFUSED", folder / "refused.log")
        proof = folder / "updates-1.npz"
        proof.write_bytes(b"what nobody asks")
        made = Servers(Given(), proof)
        yield made
        made.stop()


def as_checkout(changed: pytest.MonkeyPatch, folder: Path) -> None:
    for name, path in {"FOLDER": "swarm", "DEPLOYED": "swarm/stack.json", "OWN": "id"}.items():
        changed.setattr(swarm, name, folder / path)


@pytest.fixture
def servers(deployed: Servers) -> Servers:
    """Two, one on each node, of the version `old`."""
    deployed.given = Given()
    deployed.start(of("old"))
    assert deployed.lie() == {"node1": 1, "node2": 1}
    return deployed


def of(version: str) -> State:
    return State("swarm", version, {})


def versions(servers: Servers) -> Counter[str]:
    return Counter(task.fingerprint for task in servers.tasks() if task.runs)


def test_the_next_is_replaced_when_it_is_asked_for(servers: Servers) -> None:
    came: list[Task] = []
    for task in servers.replace_each(of("new")):
        came.append(task)
        wait_until(lambda: sum(versions(servers).values()) == 2, "an old one to go")
        # The swarm itself would have gone on by now.
        time.sleep(5)
        assert versions(servers)["new"] == len(came)
    assert len(came) == 2
    before = servers.ids()
    servers.start(of("new"))
    assert versions(servers) == {"new": 2} and servers.lie() == {"node1": 1, "node2": 1}
    assert servers.ids() & before, "those that were judged"


def test_one_that_fails_is_taken_out_alone(servers: Servers) -> None:
    before = servers.ids()
    taken = next(iter(servers.replace_each(of("failing"))))
    wait_until(lambda: sum(versions(servers).values()) == 2, "an old one to go")
    servers.keep_log("failing")
    servers.go_back(of("old"), out_first=True)
    assert re.fullmatch(r"updates_server\.\S+@node\d +\| I am here\n", state.REFUSED.read_text())
    assert versions(servers) == {"old": 2}
    assert taken.id not in servers.ids() and servers.ids() & before, "the other has stayed"
    assert servers.lie() == {"node1": 1, "node2": 1}


def test_one_that_does_not_start_is_followed_by_no_other(servers: Servers) -> None:
    before = servers.ids()
    servers.given = Given(server=("/nothing/of/this/name",))
    with pytest.raises(UserError, match="a server does not start"):
        next(iter(servers.replace_each(of("new"))))
    assert servers.ids() == before
    servers.go_back(of("old"))
    assert servers.ids() == before


def test_what_one_said_that_ended_by_itself_is_kept(servers: Servers) -> None:
    servers.given = Given(server=tuple(ENDS))
    with pytest.raises(UserError, match="a server does not start"):
        servers.start(of("another"))
    assert {line.partition("| ")[2] for line in state.REFUSED.read_text().splitlines()} == {
        "I cannot go on"
    }


def test_servers_on_one_node_are_named_and_spread_again(
    servers: Servers, nodes: list[Node]
) -> None:
    drain = ["node", "update", "--availability"]
    nodes[0].docker(*drain, "drain", "node2")
    wait_until(lambda: servers.lie() == {"node1": 2}, "both on one node")
    nodes[0].docker(*drain, "active", "node2")
    wait_until(lambda: len(servers.lie(BALANCER)) == 2, "its balancer")
    (problem,) = servers.problems()
    assert problem.startswith("servers lie unevenly, 2 on node1, 0 on node2")
    servers.scale(of("old"), 2)
    assert servers.lie() == {"node1": 1, "node2": 1} and servers.problems() == []


def test_a_node_that_lacks_the_image_keeps_its_balancer(
    servers: Servers, nodes: list[Node]
) -> None:
    nodes[0].docker("tag", IMAGE, "another:1")
    servers.given = Given(image="another:1")
    balancers, before = servers.ids(BALANCER), servers.ids()
    with pytest.raises(UserError, match="node2 lacks the image another:1") as refused:
        servers.start(of("new"))
    assert "make swarm-load" in refused.value.remedy
    assert (servers.ids(BALANCER), servers.ids()) == (balancers, before)


def test_balancers_that_do_not_start_come_back_as_they_were(servers: Servers) -> None:
    servers.given = Given(balancer=tuple(ENDS))
    with pytest.raises(UserError, match="a balancer does not start"):
        servers.start(of("old"))
    wait_until(lambda: len(servers.lie(BALANCER)) == 2, "both balancers")


def test_a_stack_of_another_checkout_is_left_alone(servers: Servers, tmp_path: Path) -> None:
    before = servers.ids()
    with pytest.MonkeyPatch.context() as changed:
        as_checkout(changed, tmp_path)
        another = Servers(Given(), servers.proof)
        with pytest.raises(UserError, match=f"the stack {NAME} of this swarm belongs to /"):
            another.start(of("another"))
        assert not another.stop()
    assert servers.ids() == before
