"""What is read out of what a cluster says."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from extensions.kubernetes import claim, pods
from extensions.kubernetes.kubectl import Kubectl, Refused, read_all
from extensions.kubernetes.relay import GRPC, HTTP, Relay
from extensions.kubernetes.stack import KubernetesStack
from scripts.base import files
from scripts.base.errors import UserError
from scripts.server import log_order


def make_pod(
    ready: bool = False, waits: str = "", restarts: int = 0, phase: str = "Running", **about: str
) -> Any:
    state = {"waiting": {"reason": waits, "message": "not here"}} if waits else {"running": {}}
    status = {"state": state, "restartCount": restarts, "ready": ready}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": "one", "uid": "1", "annotations": {pods.FINGERPRINT: "v2"}, **about},
        "spec": {"nodeName": "node1"},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [status],
        },
    }


def test_a_pod_is_asked_while_it_is_ready_and_not_to_end() -> None:
    task = pods.read_task(make_pod(ready=True))
    assert (task.runs, task.state, task.node, task.fingerprint) == (True, "running", "node1", "v2")
    task = pods.read_task(make_pod(ready=True, deletionTimestamp="now"))
    assert (task.runs, task.state) == (False, "ending")


@pytest.mark.parametrize(
    ("pod", "hopeless"),
    [
        (make_pod(), False),
        (make_pod(waits="ContainerCreating"), False),
        (make_pod(waits="ErrImagePull"), True),
        (make_pod(restarts=2), True),
        # Restarted long ago.
        (make_pod(ready=True, restarts=5), False),
        (make_pod(restarts=2, phase="Failed"), False),
    ],
)
def test_one_that_will_not_come_is_not_waited_for(pod: Any, hopeless: bool) -> None:
    assert pods.is_hopeless(pod) == hopeless


def test_why_it_does_not_run() -> None:
    assert pods.explain(make_pod(waits="ErrImagePull")) == "ErrImagePull: not here"
    pod = make_pod()
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "no node has room"}],
    }
    assert pods.read_task(pod).error == "no node has room"
    pod["status"] = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    task = pods.read_task(pod)
    assert (task.state, task.error) == ("failed", "Evicted: low on memory")


def test_a_refusal_is_one_line() -> None:
    said = "Warning: old\nError from server (Forbidden): pods is forbidden: no\n"
    fault = Refused(("apply", "--server-side"), said)
    assert fault.cause == (
        "the cluster refuses `kubectl apply`: (Forbidden): pods is forbidden: no"
    )
    assert "ask who runs the cluster" in fault.remedy


def test_objects_stand_one_after_the_other() -> None:
    assert read_all('{"a": 1}\n{"b": 2}\n') == ([{"a": 1}, {"b": 2}], "")
    assert read_all('{"a": 1}\n{"b": ') == ([{"a": 1}], '{"b": ')


def test_lines_of_pods_are_put_in_order() -> None:
    line = "[pod/triton-bundle-5f-x/server] 2026-11-26T22:33:25.834Z keeper: the server had exited"
    entry = log_order.entry(line, datetime.now(UTC))
    assert entry and entry.text == "triton-bundle-5f-x the server had exited"


def test_the_way_to_pods_outlasts_its_watch_and_forgets_an_evicted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch may end with an event that is none of a pod; who is evicted stays listed."""
    over = make_pod(phase="Failed")

    async def forward(*_: object) -> None:
        await asyncio.Event().wait()

    async def see() -> tuple[set[str], set[str]]:
        relay = Relay(Kubectl("default", ""), tmp_path / "relay.json")
        relay._note("ADDED", make_pod(ready=True))
        relay._note("ERROR", {"kind": "Status", "metadata": {}, "code": 410})
        before = {*relay._tasks}
        relay._note("MODIFIED", over)
        return before, {*relay._tasks}

    monkeypatch.setattr(Relay, "_forward", forward)
    assert asyncio.run(see()) == ({"one"}, set())


def test_the_way_to_a_pod_outlasts_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there meanwhile, and commands are told of it later."""
    full, kubectl = tmp_path / "full", tmp_path / "kubectl"
    full.touch()  # where a folder is to be
    said = [f"echo 'Forwarding from 127.0.0.1:{port + 1} -> {port}'" for port in (HTTP, GRPC)]
    files.write(kubectl, "\n".join(["#!/bin/sh", *said, "exec sleep 60"]), 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("extensions.kubernetes.relay.AGAIN_S", 0.01)

    async def see() -> None:
        relay = Relay(Kubectl("default", ""), full / "relay.json")
        writing = asyncio.create_task(relay.write())
        relay._note("ADDED", make_pod(ready=True))
        async with asyncio.timeout(30):
            while not relay.forwarded:
                await asyncio.sleep(0.01)
            full.unlink()
            while not files.read_json(relay.file).get("pods"):
                await asyncio.sleep(0.01)
        assert relay.forwarded and not writing.done()
        await relay.stop()

    asyncio.run(see())


def test_what_a_dead_node_keeps_does_not_keep_the_rest_from_ending(
    capsys: pytest.CaptureFixture[str],
) -> None:
    late = Refused(("wait",), "error: timed out waiting for the condition on pods/one")
    stack = KubernetesStack.__new__(KubernetesStack)
    stack.__dict__["_kubectl"] = kubectl = Mock()
    kubectl.run.side_effect, kubectl.list.return_value = late, [make_pod()]
    stack._wait_until_gone()
    assert "has yet to end one" in capsys.readouterr().out
    kubectl.run.side_effect = Refused(("wait",), "error: pods is forbidden")
    with pytest.raises(Refused):
        stack._wait_until_gone()


def test_what_was_evicted_explains_a_pod_of_its_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = KubernetesStack.__new__(KubernetesStack)
    stack.__dict__["_kubectl"] = kubectl = Mock()
    over = make_pod(phase="Failed")
    over["status"]["reason"] = "Evicted"
    kubectl.list.return_value = [over, make_pod(waits="ErrImagePull", name="two")]
    kubectl.run.side_effect, kubectl.get.return_value = Refused(("logs",), "error: gone"), over
    assert stack.explain("v2") == "ErrImagePull: not here"
    kubectl.run.side_effect = None
    monkeypatch.setattr("extensions.kubernetes.claim.time.sleep", Mock(side_effect=AssertionError))
    with pytest.raises(UserError, match="no pod comes up with the image image: Evicted"):
        claim.require_image(kubectl, "image", 60)


def test_what_somebody_removes_meanwhile_is_named() -> None:
    stack = KubernetesStack.__new__(KubernetesStack)
    stack.__dict__["_kubectl"] = kubectl = Mock()
    kubectl.get.return_value = {}
    with pytest.raises(UserError, match="has removed the Deployment"):
        stack.look("v2")
    with pytest.raises(UserError, match="has removed the pod"):
        claim.require_image(kubectl, "image", 1)
