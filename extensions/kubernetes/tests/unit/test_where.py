"""In which namespace commands look, and how many pods they ask for there."""

import json
import os
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from extensions.kubernetes import flavour, preflight, where
from extensions.kubernetes import settings as own
from extensions.kubernetes.kubectl import Kubectl
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.server.running import explain_unchanged
from scripts.server.served import brings_up
from scripts.server.triton import triton_api
from scripts.settings.settings import Settings
from scripts.stacks import state
from scripts.stacks.many_servers import ManyServers, require_room
from scripts.stacks.state import State

ASKED = {"cpu": "2", "memory": "3Gi"}


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "NOTE", tmp_path / "where.json")
    monkeypatch.setattr(state.load, "__defaults__", (tmp_path / "state.json",))


def find_namespace() -> str:
    """Of a command that asks for what is usual."""
    made = flavour.make_stack(Settings.load())
    return str(own.namespace.value_in(made._settings))


def test_what_runs_says_where_commands_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_namespace() == "default"
    monkeypatch.setenv("NAMESPACE", "team")
    assert find_namespace() == "team"
    where.note(Settings.load())
    assert find_namespace() == "team"
    monkeypatch.delenv("NAMESPACE")
    assert find_namespace() == "team", "also where a start ended half way"


@pytest.mark.parametrize(("name", "value"), [("NAMESPACE", "other"), ("CONTEXT", "another")])
def test_another_namespace_or_cluster_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where.note(Settings.load({"NAMESPACE": "team", "CONTEXT": "mine"}))
    monkeypatch.setenv(name, value)
    known = {"NAMESPACE": "team", "CONTEXT": "mine"}[name]
    with pytest.raises(UserError) as refused:
        find_namespace()
    assert refused.value.cause == f"servers run with {name}={known}, and {name}={value} is given"
    assert f"make down {name}={known}" in refused.value.remedy


def test_servers_of_an_earlier_bundle_are_found(tmp_path: Path) -> None:
    State("kubernetes", "", {"NAMESPACE": "team"}).save(tmp_path / "state.json")
    assert find_namespace() == "team"
    State("local", "", {"NAMESPACE": "team"}).save(tmp_path / "state.json")
    assert find_namespace() == "default"


def make_nodes(*has: tuple[str, str]) -> list[Any]:
    return [
        {"status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}}
        for cpu, memory in has
    ]


@pytest.mark.parametrize(
    ("nodes", "room_for"),
    [
        ([("4", "16Gi"), ("3920m", "16384Mi")], 3),
        ([("64", "7Gi")], 2),
        ([("64", "3221225472")], 1),
        ([("1000", "9Ti")], 110),
        ([], 0),
    ],
)
def test_how_many_pods_nodes_have_room_for(
    nodes: list[tuple[str, str]],
    room_for: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubectl = answering(tmp_path, monkeypatch, make_nodes(*nodes))
    found = preflight.find_room(kubectl, ASKED)
    assert found and found.count() == room_for


def test_quantities_as_kubernetes_writes_them() -> None:
    read = preflight.parse_quantity
    assert [read(text) for text in ("500m", "1.5", "2k", "1e3", "1Ki", "5.5Gi")] == [
        *(Decimal("0.5"), Decimal("1.5"), 2000, 1000, 1024),
        Decimal("5.5") * 1024**3,
    ]
    assert read("512b") == read("") == 0


def answering(folder: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[Any]) -> Kubectl:
    """A program that answers with these nodes; refuses, where there is no such file."""
    program, file = folder / "kubectl", folder / "nodes.json"
    program.write_text(
        f'#!/bin/sh\n[ -e {file} ] && cat {file} || {{ echo "{DENIED}" >&2; exit 1; }}\n'
    )
    program.chmod(0o755)
    file.write_text(json.dumps({"items": nodes}))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Kubectl("team", "")


DENIED = "Error from server (Forbidden): nodes is forbidden"


def test_more_pods_than_there_is_room_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = answering(tmp_path, monkeypatch, make_nodes(("4", "16Gi"), ("4", "16Gi")))

    def require(replicas: int, most: int | None) -> None:
        require_room(replicas, most, lambda: preflight.find_room(kubectl, ASKED))

    require(4, None)
    with pytest.raises(UserError) as refused:
        require(500, None)
    assert refused.value.cause == (
        "REPLICAS=500, and the cluster has 2 nodes with room for 4 such pods "
        "(cpu 2, memory 3Gi each)"
    )
    assert "MAX_REPLICAS=500" in refused.value.remedy
    require(500, 500)
    with pytest.raises(UserError, match="REPLICAS=501 is more than 500"):
        require(501, 500)
    (tmp_path / "nodes.json").unlink()
    require(100, None)
    with pytest.raises(UserError, match="REPLICAS=101 is more than 100"):
        require(101, None)


@pytest.mark.parametrize("count", ["abc", "-1", "2.5"])
def test_what_is_no_number_of_pods_is_refused(count: str) -> None:
    with pytest.raises(UserError, match=f"REPLICAS={count} must be 0 or a positive integer"):
        Settings.load({"REPLICAS": count})


def test_what_no_pod_answers_is_started_in_the_cluster(tmp_path: Path) -> None:
    """And no server here in its place."""
    assert brings_up(pipelines.main()) == "make up"
    State(flavour.NAME, "x", {"REPLICAS": "0"}).save(tmp_path / "state.json")
    assert brings_up(pipelines.main()) == "make cluster-up"
    assert "make down && make cluster-up" in triton_api.remedy_of_silence()
    wanted = {"ARCH": "resnet18"}
    assert explain_unchanged(["ARCH"], {}, wanted).endswith(": make cluster-up ARCH=resnet18")
    beside = explain_unchanged(["ARCH"], {}, wanted, " MODEL=birds")
    assert beside.endswith(": make up MODEL=birds ARCH=resnet18")
    other = explain_unchanged(["FLAVOUR"], {"FLAVOUR": flavour.NAME}, {"FLAVOUR": "cpu"})
    assert other.endswith(": make up FLAVOUR=cpu")


def test_no_pods_are_scaled_where_there_are_some(tmp_path: Path) -> None:
    none: Any = SimpleNamespace(_settings=Settings.load({"REPLICAS": "0"}))
    with pytest.raises(UserError) as refused:
        ManyServers.prepare(none)
    assert refused.value.remedy == "give REPLICAS=2"
    State(flavour.NAME, "x", {"REPLICAS": "0"}).save(tmp_path / "state.json")
    with pytest.raises(UserError) as refused:
        ManyServers.prepare(none)
    assert refused.value.remedy.endswith(": make scale REPLICAS=2")
