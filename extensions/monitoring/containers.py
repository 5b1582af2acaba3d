"""Prometheus and Alertmanager beside the server: what they read, and their containers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bundle_door.access import key_file
from bundle_door.access.key_file import Client
from bundle_door.watching.measures import SECONDS, number
from extensions.monitoring import dashboards
from extensions.monitoring.settings import alertmanager_port, prometheus_port
from scripts.base import console, files, lock, ports
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.settings.settings import Settings
from scripts.stacks import exposure
from scripts.stacks.state import State

# The code that talks to Docker takes a third of a second to import.
if TYPE_CHECKING:
    from scripts.stacks.containers import DockerStack

SOURCE = Path(__file__).parent
FOLDER = ROOT / "build" / "monitoring"
SERVICES = ("prometheus", "alertmanager")
# The ports inside the containers.
METRICS, PROMETHEUS, ALERTMANAGER = 8002, 9090, 9093

# The answers that the rules call late take longer than one of the histogram's bounds.
BOUND_S = 0.501

# What Prometheus is called among the clients, if the server asks for a key.
CLIENT = "monitoring"
KEY, CERTIFICATE = FOLDER / "server.key", FOLDER / "server.pem"


def _find_places(known: State, settings: Settings) -> tuple[str, str, str]:
    """Of the server and Alertmanager, as Prometheus finds them, and of Prometheus itself."""
    if known.flavour != "local":
        return f"server:{METRICS}", f"alertmanager:{ALERTMANAGER}", f"prometheus:{PROMETHEUS}"
    server = str(known.where(known.settings_at_start.metrics_port))
    here = (each.value_in(settings) for each in (alertmanager_port, prometheus_port))
    alertmanager, prometheus = (f"127.0.0.1:{port}" for port in here)
    return server, alertmanager, prometheus


def write(known: State, settings: Settings, latency_ms: float | None) -> float:
    """What Prometheus and Grafana read, for the server that runs; returns the bound of late answers
    in milliseconds."""
    server_place, alertmanager, prometheus = _find_places(known, settings)
    FOLDER.mkdir(parents=True, exist_ok=True)
    mode = FOLDER.stat().st_mode
    if mode | 0o555 != mode:  # in a container its reader is another user
        FOLDER.chmod(mode | 0o555)
    bound = nearest(latency_ms / 1000) if latency_ms else BOUND_S
    files.write(FOLDER / "rules.yml", rules(bound))
    config: dict[str, Any] = yaml.safe_load((SOURCE / "prometheus.yml").read_text())
    (alertmanagers,) = config["alerting"]["alertmanagers"]
    alertmanagers["static_configs"] = [{"targets": [alertmanager]}]
    (server,) = config["scrape_configs"]
    server["static_configs"] = [{"targets": [server_place]}]
    server |= _describe_access(known)
    files.write(FOLDER / "prometheus.yml", yaml.safe_dump(config, sort_keys=False))
    dashboards.write(FOLDER / "grafana", f"http://{prometheus}")
    files.let_all_read(FOLDER / "grafana")
    return bound * 1000


def nearest(seconds: float) -> float:
    return min(SECONDS, key=lambda bound: abs(math.log(bound / seconds)))


def rules(bound: float = BOUND_S) -> str:
    return (SOURCE / "rules.yml").read_text().replace(number(BOUND_S), number(bound))


def _describe_access(known: State) -> dict[str, Any]:
    """What the server's ports want to see of a scraper; paths are relative to the file."""
    seen = known.where(known.settings_at_start.metrics_port)
    secured: dict[str, Any] = {}
    if seen.certificate:
        files.copy(seen.certificate, CERTIFICATE)
        name = exposure.name_in(seen.certificate)
        secured["scheme"] = "https"
        secured["tls_config"] = {"ca_file": CERTIFICATE.name, "server_name": name}
    if seen.api_key:
        _ensure_key()
        secured["authorization"] = {"credentials_file": KEY.name}
    return secured


def _ensure_key() -> None:
    with lock.one_at_a_time(lock.OF_KEYS):
        clients = key_file.read(exposure.KEYS)
        if KEY.exists() and key_file.hash_key(KEY.read_text().strip()) in clients:
            return
        if CLIENT in key_file.names(clients):
            key_file.revoke(exposure.KEYS, CLIENT)
        files.write(KEY, key_file.add(exposure.KEYS, Client(CLIENT)) + "\n", mode=0o600)


def start(settings: Settings) -> None:
    """The containers, anew: they read their files when they start."""
    stack = _docker(settings)
    for service, setting in zip(SERVICES, (prometheus_port, alertmanager_port), strict=True):
        if not stack.alive(service):
            wanted = {setting.name: setting.value_in(settings)}
            ports.require_free("127.0.0.1", wanted, "monitoring", by_engine=True)
    if KEY.exists():
        stack.let_containers_read(KEY)
    stack.images.build(SERVICES[0])
    with console.waiting("starting Prometheus"):
        started = stack.compose.run(
            *("up", "--detach", "--wait", "--no-build", "--no-deps", "--force-recreate"),
            *SERVICES,
            quiet=True,
        )
    if started.returncode:
        from scripts.stacks.docker_engine import last_line

        why = last_line(stack.log(SERVICES[0]) + stack.log(SERVICES[1]) + started.stderr)
        _remove(stack)
        raise UserError(
            f"Prometheus does not start: {why}", "check ALERTMANAGER_CONFIG, if you have set it"
        )


def stop(known: State | None) -> bool:
    """Whether there was something to stop; what was measured is kept."""
    if known and known.flavour == "local" and not FOLDER.exists():
        return False
    from scripts.stacks.docker_engine import why_not_docker

    return not why_not_docker() and _remove(_docker(Settings.load()))


def _remove(stack: DockerStack) -> bool:
    return any([stack.compose.remove_service(service) for service in SERVICES])


def _docker(settings: Settings) -> DockerStack:
    from scripts.stacks.containers import DockerStack

    return DockerStack(settings)
