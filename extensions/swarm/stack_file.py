"""The stack file of a Docker Swarm, from what Compose makes of compose.yaml.

`docker stack` ignores some of what Compose knows, and refuses some; what has another form there is
translated, and the rest is named in LEFT_OUT with its reason. A key that is neither is refused, so
that nothing of a COMPOSE_OVERRIDE is lost in silence.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_door.access.certificate import OF_SERVERS
from bundle_serving.process import main_pipeline
from scripts.base.errors import UserError
from scripts.rollout.proofs import find_numbers, list_versions

Service = dict[str, Any]

SERVER, CANARY, BALANCER = "server", "canary", "balancer"
# What servers are called, and Docker's name for all of their addresses.
ALIAS = "servers"
SERVERS = f"tasks.{ALIAS}"

# The same in a stack.
KEPT = (
    *("user", "read_only", "cap_drop", "cap_add", "init", "environment", "labels", "logging"),
    *("healthcheck", "stop_grace_period"),
)
TRANSLATED = (
    *("image", "ports", "volumes", "tmpfs", "secrets", "shm_size", "mem_limit", "pids_limit"),
    *("restart", "networks"),
)
LEFT_OUT = {
    "build": "images are built before, and loaded or pushed",
    "command": "it is the image's",
    "entrypoint": "it is the image's",
    "depends_on": "the steps have run before",
    "security_opt": "no-new-privileges is a setting of each node's engine there",
}

# An engine ends what is not healthy; first the keeper has two minutes to restore it.
RETRIES = 12

KEY, TLS, S3, AUTHORITIES = "/run/key", "/run/tls", "/run/secrets/s3", "/etc/ssl/certs"
PROOFS = "/run/proofs"
# In a container: user and group of the server.
READER = {"uid": "65532", "gid": "65532", "mode": 0o440}
NAME_CHARACTERS = 63
# What becomes of the volume `state`: it lives as long as the container.
STATE_BYTES = 16 << 20
# So long an update waits for a command that has ended: nothing is replaced that nobody judges.
HELD_S = 30 * 24 * 3600
ONE_BY_ONE = {"parallelism": 1, "failure_action": "rollback", "max_failure_ratio": 0}
BALANCERS_MEMORY = "1g"
OF_BALANCERS = ("user", "read_only", "cap_drop", "init", "logging", "stop_grace_period")
BALANCERS_SETTINGS = ("BIND", "INSECURE", "TLS_CERT", "MAX_BODY_MB", "LOG_FORMAT")


@dataclass(frozen=True)
class Given:
    """What a stack has besides the service of compose.yaml."""

    name: str
    image: str
    # A folder that each node has under this path, or its address on S3.
    models: Path | str
    replicas: int
    # The balancer's, by those inside.
    ports: Mapping[int, int]
    # Where each lies in a container.
    secrets: Mapping[str, Path]
    # What each server must answer, by ensemble; it loads them all.
    proofs: Mapping[str, Path]
    # Whose the stack is, on each of its services.
    labels: Mapping[str, str]
    # By their digests, those that servers show: the newest, and the one before.
    certificates: Sequence[str] = ()


def make_stack_file(server: Service, given: Given) -> dict[str, Any]:
    """All of it; as JSON, which is YAML too."""
    _require_known(server)
    kept = {name: server[name] for name in KEPT if name in server}
    kept["environment"] = {name: value or "" for name, value in server["environment"].items()}
    kept["environment"]["RELAY_FOLDER"] = ""
    if isinstance(given.models, str):
        kept["environment"]["REPOSITORY"] = given.models
    beside = given.proofs.keys() - {kept["environment"][main_pipeline.VARIABLE]}
    kept["environment"]["EXTRA_PIPELINES"] = " ".join(sorted(beside))
    kept["environment"]["LIVE_VERSIONS"] = list_versions(find_numbers(given.proofs))
    secrets = {target: _name_by_content(given.name, file) for target, file in given.secrets.items()}
    proofs = {
        ensemble: _name_by_content(given.name, file) for ensemble, file in given.proofs.items()
    }
    shown = {target: name for target, name in secrets.items() if target.startswith(TLS)}
    return {
        "version": "3.9",
        "services": {
            SERVER: kept | _server(server, given, secrets, proofs),
            BALANCER: _balancer(kept, given, shown),
        },
        # Not the name that Compose gives to the network of the steps.
        "networks": {
            "default": {"name": f"{given.name}_swarm", "driver": "overlay", "attachable": True}
        },
        "secrets": {
            name: {"name": name, "file": str(given.secrets[target])}
            for target, name in secrets.items()
        },
        "configs": {
            name: {"name": name, "file": str(given.proofs[ensemble])}
            for ensemble, name in proofs.items()
        },
    }


def one_at_a_time(stack: dict[str, Any], turn: int) -> dict[str, Any]:
    """One more server is replaced; the next one only if this is deployed with another turn. The
    first that does not start stops it, and nothing goes back by itself: what was before is this
    very stack, in the turn before."""
    return _set_update(stack, delay=f"{HELD_S + turn}s", failure_action="pause")


def out_first(stack: dict[str, Any]) -> dict[str, Any]:
    """A server that is replaced goes before the new one comes."""
    return _set_update(stack, order="stop-first")


def with_replicas(stack: dict[str, Any], replicas: int) -> dict[str, Any]:
    return _set_deploy(stack, replicas=replicas)


def _set_update(stack: dict[str, Any], **changed: str) -> dict[str, Any]:
    before = stack["services"][SERVER]["deploy"]["update_config"]
    return _set_deploy(stack, update_config=before | changed)


def _set_deploy(stack: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Of the servers."""
    server = stack["services"][SERVER]
    server = server | {"deploy": server["deploy"] | changed}
    return stack | {"services": stack["services"] | {SERVER: server}}


def with_canary(stack: dict[str, Any], new: dict[str, Any], count: int) -> dict[str, Any]:
    """So many servers of the new stack beside those of the other, to which no balancer sends
    requests."""
    server = new["services"][SERVER]
    deploy = server["deploy"] | {"replicas": count}
    return _add(stack, new, {CANARY: server | {"deploy": deploy, "networks": {"default": {}}}})


def with_balancer(stack: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return _add(stack, new, {BALANCER: new["services"][BALANCER]})


def _add(stack: dict[str, Any], new: dict[str, Any], services: dict[str, Any]) -> dict[str, Any]:
    """And what they read."""
    return stack | {
        "services": stack["services"] | services,
        **{kind: new[kind] | stack[kind] for kind in ("secrets", "configs")},
    }


def _require_known(server: Service) -> None:
    for name in server.keys() - {*KEPT, *TRANSLATED, *LEFT_OUT}:
        raise UserError(f"a swarm's services have no {name}", "remove it from COMPOSE_OVERRIDE")


def _server(
    server: Service, given: Given, secrets: Mapping[str, str], proofs: Mapping[str, str]
) -> dict[str, Any]:
    healthcheck = server["healthcheck"] | {"retries": RETRIES}
    return {
        "image": given.image,
        "networks": {"default": {"aliases": [ALIAS]}},
        "volumes": _mounts(server, given.models),
        "secrets": _hand_secrets(secrets),
        "configs": [
            {"source": name, "target": f"{PROOFS}/{ensemble}.npz"}
            for ensemble, name in proofs.items()
        ],
        "healthcheck": healthcheck | {"test": [*healthcheck["test"], f"--proof={PROOFS}"]},
        "deploy": {
            "labels": dict(given.labels),
            "replicas": given.replicas,
            # Addresses, not a virtual one: the balancers choose for each request.
            "endpoint_mode": "dnsrr",
            "resources": {"limits": {"memory": server["mem_limit"], "pids": server["pids_limit"]}},
            "restart_policy": {"condition": "any", "delay": "1s"},
            # One after the other, each in the place of one that serves until then; the first that
            # does not become healthy stops it, and all go back.
            "update_config": ONE_BY_ONE | {"order": "start-first", "monitor": "5s"},
            "rollback_config": {"parallelism": 1, "order": "start-first", "monitor": "5s"},
        },
    }


def _balancer(kept: Service, given: Given, secrets: Mapping[str, str]) -> dict[str, Any]:
    """The same whatever is served, so that it stays when the servers are replaced."""
    as_the_server = {name: kept[name] for name in OF_BALANCERS if name in kept}
    return as_the_server | {
        "image": given.image,
        "environment": {
            **{name: kept["environment"][name] for name in BALANCERS_SETTINGS},
            OF_SERVERS: " ".join(given.certificates),
        },
        "command": [
            *("python3", "-m", "bundle_door.balancer"),
            *("--servers", SERVERS, "--run-dir", "/tmp"),
        ],
        "volumes": [_in_memory("/tmp")],
        "secrets": _hand_secrets(secrets),
        "ports": [
            {"target": inside, "published": outside, "mode": "host"}
            for inside, outside in given.ports.items()
        ],
        "healthcheck": {
            "test": ["CMD", "bash", "-c", "</dev/tcp/127.0.0.1/8000"],
            **{"interval": "5s", "timeout": "3s", "start_period": "30s"},
        },
        "deploy": {
            "labels": dict(given.labels),
            "mode": "global",
            "endpoint_mode": "dnsrr",
            "resources": {"limits": {"memory": BALANCERS_MEMORY, "pids": 256}},
            "restart_policy": {"condition": "any", "delay": "1s"},
            # Two cannot have one node's port: the first that does not start brings the old back.
            "update_config": ONE_BY_ONE | {"order": "stop-first", "monitor": "15s"},
            "rollback_config": {"parallelism": 0, "order": "stop-first", "monitor": "5s"},
        },
    }


def _mounts(server: Service, models: Path | str) -> list[dict[str, Any]]:
    made = [_in_memory("/dev/shm", int(server["shm_size"])), _in_memory("/state", STATE_BYTES)]
    for each in server["tmpfs"]:
        target, _, options = each.partition(":")
        # Docker's own mounts in memory are all noexec, its volumes are not.
        executed = "exec" in options.split(",")
        made.append({"type": "volume", "target": target} if executed else _in_memory(target))
    if isinstance(models, Path):
        source = {"type": "bind", "source": str(models)}
        made.append(source | {"target": "/models", "read_only": True})
    return made


def _in_memory(target: str, size: int | None = None) -> dict[str, Any]:
    return {"type": "tmpfs", "target": target, **({"tmpfs": {"size": size}} if size else {})}


def _hand_secrets(secrets: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"source": name, "target": target, **READER} for target, name in secrets.items()]


def _name_by_content(stack: str, file: Path) -> str:
    """Another name for another content: a swarm's secrets and configs never change."""
    mark = hashlib.sha256(stack.encode() + file.read_bytes()).hexdigest()[:12]
    end = f"-{file.name.replace('.', '-')[-NAME_CHARACTERS // 2 :]}-{mark}"
    return stack[: NAME_CHARACTERS - len(end)] + end
