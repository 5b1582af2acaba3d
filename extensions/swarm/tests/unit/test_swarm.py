"""The stack file of a swarm says what compose.yaml says."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from bundle_door import relay
from bundle_door.access.certificate import OF_SERVERS
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from extensions.swarm import stack, stack_file
from extensions.swarm.spread import Node
from extensions.swarm.stack_file import KEPT, LEFT_OUT, Given
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.repository import live, place
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import exposure
from scripts.stacks.containers import DockerStack

Service = dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Service:
    """The service of compose.yaml, as Compose resolves it."""
    if not shutil.which("docker"):
        pytest.skip("no docker compose here")
    given = {"BIND": "0.0.0.0", "START_TIMEOUT": "300"}
    stack = DockerStack(Settings.load(given, Path("none")))
    asked = stack.compose.run("config", "--format", "json", quiet=True)
    if asked.returncode:
        pytest.skip("no docker compose here")
    found: Service = json.loads(asked.stdout)["services"]["server"]
    return found


@pytest.fixture
def given(tmp_path: Path) -> Given:
    names = {"/run/key/admin.key": "admin.key", "/run/tls/cert.pem": "cert.pem"}
    secrets = {target: tmp_path / name for target, name in names.items()}
    proofs = {name: tmp_path / f"{name}-1.npz" for name in (PIPELINE, "sentiment_ensemble")}
    for file in (*secrets.values(), *proofs.values()):
        file.write_text(file.name)
    models = Path("/srv/models/abc")
    ports = {8000: 80, 8001: 81}
    return Given("bundle", "server:abc", models, 3, ports, secrets, proofs, {"whose": "ours"})


def test_the_servers_are_what_compose_runs(server: Service, given: Given) -> None:
    raw = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["server"]
    assert {*raw} - {"<<"} <= server.keys(), "nothing was lost on the way"
    ours = stack_file.make_stack_file(server, given)["services"]["server"]
    same = {*KEPT} - {"environment", "healthcheck"}
    assert {name: ours[name] for name in same & server.keys()} == {
        name: server[name] for name in same & server.keys()
    }
    assert {"user", "read_only", "cap_drop", "init", "stop_grace_period"} <= same & ours.keys()
    assert ours["environment"].pop("EXTRA_PIPELINES") == "sentiment_ensemble"
    told = f"{PIPELINE}=1 sentiment_ensemble=1"
    assert ours["environment"].pop("LIVE_VERSIONS") == told
    wanted = {k: v or "" for k, v in server["environment"].items()}
    assert ours["environment"] == wanted | {"RELAY_FOLDER": ""}
    *words, proof = ours["healthcheck"].pop("test")
    # An engine ends a server that is not healthy by then.
    composes = server["healthcheck"]
    assert ours["healthcheck"]["retries"] > composes["retries"]
    own = {"test": words, "retries": composes["retries"]}
    assert ours["healthcheck"] | own == composes
    assert ours["healthcheck"]["start_period"] == "5m0s"
    folder = proof.removeprefix("--proof=")
    names = (PIPELINE, "sentiment_ensemble")
    shown = [each["target"] for each in ours["configs"]]
    assert shown == [f"{folder}/{name}.npz" for name in names]

    deploy = ours["deploy"]
    limits = deploy["resources"]["limits"]
    assert limits == {"memory": server["mem_limit"], "pids": server["pids_limit"]}
    assert deploy["replicas"] == 3 and deploy["restart_policy"]["condition"] == "any"
    assert deploy["update_config"]["order"] == "start-first"
    assert deploy["update_config"]["failure_action"] == "rollback"
    assert "ports" not in ours, "only the balancers are reached"


def test_every_mount_is_there(server: Service, given: Given) -> None:
    made = stack_file.make_stack_file(server, given)["services"]["server"]
    mounts = {each["target"]: each for each in made["volumes"]}
    secrets = {each["target"].rpartition("/")[0] for each in made["secrets"]}
    asked = {each["target"] for each in server["volumes"]} - {"/run/ports"}
    temporary = {each.partition(":")[0] for each in server["tmpfs"]}
    assert asked | temporary | {"/dev/shm"} == {*mounts} | secrets
    assert mounts["/models"] == {
        "type": "bind",
        "source": "/srv/models/abc",
        "target": "/models",
        "read_only": True,
    }
    assert mounts["/dev/shm"]["tmpfs"]["size"] == int(server["shm_size"])
    assert mounts["/run/triton"]["type"] == "volume", "programs run from it"
    assert mounts["/tmp"]["type"] == "tmpfs"
    user, group = server["user"].split(":")
    for secret in made["secrets"]:
        assert (secret["uid"], secret["gid"], secret["mode"]) == (user, group, 0o440)


def test_the_balancers_open_the_ports_that_compose_publishes(server: Service, given: Given) -> None:
    made = stack_file.make_stack_file(server, given)["services"]
    balancer = made["balancer"]
    assert {port["target"] for port in balancer["ports"]} == {*relay.PORTS.values()} - {8002}
    assert all(port["mode"] == "host" for port in balancer["ports"])
    for name in ("user", "read_only", "cap_drop", "init"):
        assert balancer[name] == made["server"][name]
    told = made["server"]["environment"] | {OF_SERVERS: ""}
    assert balancer["environment"].items() <= told.items()
    another = stack_file.make_stack_file(server | {"labels": {"fingerprint": "another"}}, given)
    assert another["services"]["balancer"] == balancer, "a rollout leaves it alone"
    assert [each["target"] for each in balancer["secrets"]] == ["/run/tls/cert.pem"]


def test_with_a_new_certificate_balancers_come_first(
    server: Service, given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They trust the one before as well: else none of them would reach a server until the first has
    the new one. They come once, also where servers that are replaced one by one are deployed as a
    whole at the end, and stay as they are with the next start."""
    monkeypatch.setattr(stack, "DEPLOYED", tmp_path / "stack.json")
    monkeypatch.setattr(exposure, "exposure_of", lambda _: Mock(certificate=Path("any")))
    swarm, deployed = stack.SwarmStack(Settings(DEFAULTS)), list[Service]()
    container: dict[str, list[str]] = {}
    monkeypatch.setattr(swarm, "_container_of", lambda _: container)
    monkeypatch.setattr(swarm, "_are_balancers_settled", lambda: True)

    def deploy(made: Service) -> None:
        deployed.append(made["services"])
        told = made["services"]["balancer"]["environment"]
        container["Env"] = [f"{name}={value}" for name, value in told.items()]

    monkeypatch.setattr(swarm, "_deploy", deploy)

    def start(certificate: str) -> Service:
        monkeypatch.setattr(stack, "compute_digest", lambda _: certificate)
        service = server | {"labels": {"fingerprint": certificate}}
        known = replace(given, certificates=swarm._list_certificates())
        made = stack_file.make_stack_file(service, known)
        for _ in range(2):
            swarm._replace_balancers(made)
            swarm._deploy(made)
        stack._note(made)
        services: Service = made["services"]
        return services

    old = start("old")
    assert start("old") == old and deployed == 4 * [old]
    new = start("new")
    assert new["balancer"]["environment"][OF_SERVERS] == "new old"
    assert deployed[4:] == [old | {"balancer": new["balancer"]}, new, new]
    assert start("new") == new and deployed[7:] == [new, new]


def test_each_service_says_whose_it_is(server: Service, given: Given) -> None:
    for each in stack_file.make_stack_file(server, given)["services"].values():
        assert each["deploy"]["labels"] == {"whose": "ours"}


def test_balancers_that_do_not_start_bring_the_old_ones_back(server: Service, given: Given) -> None:
    """Each has its node's port, so that the old one has ended when the new one starts."""
    deploy = stack_file.make_stack_file(server, given)["services"]["balancer"]["deploy"]
    assert deploy["update_config"]["failure_action"] == "rollback"
    assert deploy["update_config"]["order"] == deploy["rollback_config"]["order"] == "stop-first"
    assert deploy["rollback_config"]["parallelism"] == 0, "all at once: their ports are closed"


def test_servers_are_replaced_one_at_a_time_on_demand(server: Service, given: Given) -> None:
    made = stack_file.make_stack_file(server, given)
    turns = [stack_file.one_at_a_time(made, turn) for turn in (0, 1)]
    configs = [each["services"]["server"]["deploy"]["update_config"] for each in turns]
    assert configs[0]["delay"] != configs[1]["delay"], "else the swarm would not go on"
    for config, turned in zip(configs, turns, strict=True):
        assert config["failure_action"] == "pause", "what it would go back to is the turn before"
        assert int(config["delay"].removesuffix("s")) > 24 * 3600
        assert turned["services"]["balancer"] == made["services"]["balancer"]
    first = stack_file.out_first(made)["services"]["server"]["deploy"]
    assert first["update_config"]["order"] == "stop-first"
    assert made == stack_file.make_stack_file(server, given), "unchanged"


def test_no_balancer_asks_a_canary(server: Service, given: Given) -> None:
    live = stack_file.make_stack_file(server, given)
    new = stack_file.make_stack_file(server | {"labels": {"fingerprint": "another"}}, given)
    made = stack_file.with_canary(live, new, 2)["services"]
    assert made.pop("canary") == new["services"]["server"] | {
        "networks": {"default": {}},
        "deploy": new["services"]["server"]["deploy"] | {"replicas": 2},
    }
    assert made == live["services"] and made["server"]["networks"]["default"]["aliases"]


def test_s3_comes_without_a_folder(server: Service, given: Given) -> None:
    there = "s3://bucket/models/live-swarm/abc"
    made = stack_file.make_stack_file(server, Given(**{**vars(given), "models": there}))[
        "services"
    ]["server"]
    assert made["environment"]["REPOSITORY"] == there
    assert "/models" not in {each["target"] for each in made["volumes"]}


def test_another_content_has_another_name(server: Service, given: Given) -> None:
    first = stack_file.make_stack_file(server, given)
    given.secrets["/run/key/admin.key"].write_text("another")
    second = stack_file.make_stack_file(server, given)
    names = [{*made["secrets"]} | {*made["configs"]} for made in (first, second)]
    assert len(names[0] & names[1]) == 3 and len(names[0] | names[1]) == 5
    long = stack_file.make_stack_file(server, Given(**{**vars(given), "name": "x" * 80}))
    for name in (*long["secrets"], *long["configs"]):
        assert re.fullmatch(r"[a-zA-Z0-9][\w-]{0,62}", name)


def test_what_a_swarm_does_not_know_is_said(server: Service, given: Given) -> None:
    assert not {*LEFT_OUT} & stack_file.make_stack_file(server, given)["services"]["server"].keys()
    with pytest.raises(UserError, match="have no devices"):
        stack_file.make_stack_file(server | {"devices": ["/dev/kvm"]}, given)


def test_docker_reads_it(server: Service, given: Given) -> None:
    text = json.dumps(stack_file.make_stack_file(server, given))
    command = ["docker", "stack", "config", "--compose-file", "-"]
    read = subprocess.run(command, input=text, capture_output=True, text=True)
    if "not a docker command" in read.stderr or "Unknown" in read.stderr:
        pytest.skip("this docker cannot show a stack")
    assert read.returncode == 0, read.stderr
    assert "Ignoring" not in read.stderr and "unsupported" not in read.stderr.lower()


def test_servers_that_run_keep_the_folder_that_they_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step of a rollout lays out again what all have by then: a mount leads to the folder
    itself, whatever comes under its name."""
    monkeypatch.setattr(stack, "MODELS", tmp_path / "models")
    monkeypatch.setattr(live, "REPOSITORY", tmp_path / "live")
    files.write(tmp_path / "live" / "birds" / "config.pbtxt", "")
    swarm = stack.SwarmStack(Settings(DEFAULTS))
    placed = Path(swarm._place_copy("abc"))
    mounted = placed.stat().st_ino
    assert swarm._place_copy("abc") == placed
    assert placed.stat().st_ino == mounted and (placed / "birds" / "config.pbtxt").is_file()
    files.write(tmp_path / "live" / "birds" / "1" / "model.py", "")  # the copy has half of it
    assert Path(swarm._place_copy("abc"), "birds", "1", "model.py").is_file()
    assert placed.stat().st_ino != mounted


def test_what_ran_before_is_deployed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the new servers do not come, or nobody waits for them: the swarm would go on."""
    swarm, deployed = stack.SwarmStack(Settings(DEFAULTS)), list[object]()
    monkeypatch.setattr(stack, "DEPLOYED", tmp_path / "stack.json")
    monkeypatch.setattr(swarm, "_prepare_stack", lambda _: "new")
    monkeypatch.setattr(swarm, "_replace_balancers", Mock())
    monkeypatch.setattr(swarm, "_deploy", deployed.append)
    monkeypatch.setattr(swarm, "wait_until_settled", Mock(side_effect=KeyboardInterrupt))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            swarm.start(Mock())
        files.write(tmp_path / "stack.json", '"before"')
    assert deployed == ["new", "new", "before"]  # the first ones are removed with the stack


def test_no_more_servers_stay_where_nobody_waits_until_they_are_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swarm, deployed = stack.SwarmStack(Settings(DEFAULTS)), list[Service]()
    nodes = [Node(name, name, "ready", active=True) for name in ("node1", "node2")]
    monkeypatch.setattr(swarm, "nodes", lambda: nodes)
    monkeypatch.setattr(swarm, "tasks", lambda: 2 * [Mock(node="node1")])
    monkeypatch.setattr(swarm, "_deploy", deployed.append)
    monkeypatch.setattr(swarm, "wait_until_settled", Mock(side_effect=KeyboardInterrupt))
    given: Service = {"services": {"server": {"deploy": {"replicas": 2}}}}
    with pytest.raises(KeyboardInterrupt):
        swarm._spread(given, Mock())
    assert deployed == [stack_file.with_replicas(given, 3), given]


def test_copies_on_s3_of_another_checkout_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, removed = Mock(), list[str]()
    monkeypatch.setattr(place, "open_folder", lambda _: Mock(place_beside=lambda _: copies))
    names = []
    for checkout, versions in (("theirs", "12"), ("ours", "34")):
        monkeypatch.setattr(stack, "OWN", tmp_path / checkout)
        names += [stack._name(Mock(fingerprint=mark * 64)) for mark in versions]
    there = [f"{name}/birds/config.pbtxt" for name in names]
    copies.list = lambda prefix="": [each for each in there if each.startswith(prefix)]
    copies.remove = removed.append
    stack.SwarmStack(Settings(DEFAULTS))._leave_only(names[-1])
    assert removed == [f"{names[-2]}/"]
