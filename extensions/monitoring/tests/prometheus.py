"""A real Prometheus beside a server, that looks more often and whose rules take less time."""

import json
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from extensions.monitoring.containers import SERVICES
from extensions.monitoring.dashboards import ALL, PIPELINE
from tests.project import Project, free_ports, run, wait_until

# All times of the rules are a thirtieth, and so it has as much to look at.
FASTER, EVERY_S = 30, 2
SECONDS = {"m": 60, "h": 3600}


def list_queries() -> Iterator[tuple[str, str, str]]:
    """Of the dashboards, each with its dashboard and panel, of all pipelines."""
    for title, panels in ALL.items():
        for panel in panels:
            for expr in panel.queries.values():
                yield title, panel.title, expr.replace(PIPELINE, ".*")


def faster(rules: str) -> str:
    def shorter(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) * SECONDS[found[3]] // FASTER}s"

    return re.sub(r"(\[|for: )(\d+)([mh])\b", shorter, rules)


def hurry(project: Project) -> None:
    """What `make monitoring` has written."""
    folder = project.path / "build" / "monitoring"
    rules, config = folder / "rules.yml", folder / "prometheus.yml"
    rules.write_text(faster(rules.read_text()))
    config.write_text(re.sub(r"_interval: \d+s", f"_interval: {EVERY_S}s", config.read_text()))


@dataclass
class Prometheus:
    project: Project
    port: int
    process: subprocess.Popen[bytes] | None = None  # else it is in a container

    def reload(self, **settings: str) -> None:
        """With what `make monitoring` writes now."""
        self.project.made("monitoring", **settings)
        self.hurry()

    def hurry(self) -> None:
        hurry(self.project)
        if self.process:
            self.process.send_signal(signal.SIGHUP)
        else:
            run("docker", "kill", "--signal", "HUP", self.project.container("prometheus"))

    def get(self, path: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def sees_the_server(self) -> bool:
        assert not self.process or self.process.poll() is None, "Prometheus has ended"
        try:
            return bool(self.query("up == 1"))
        except OSError:
            return False

    def query(self, expr: str) -> list[Any]:
        found: list[Any] = self.get(f"query?query={quote(expr)}")["result"]
        return found

    def firing(self) -> set[str]:
        """The names of alerts; those of objectives with the objective."""
        alerts = self.get("alerts")["alerts"]
        return {
            "/".join(filter(None, (each["labels"]["alertname"], each["labels"].get("objective"))))
            for each in alerts
            if each["state"] == "firing"
        }

    def until_firing(self, *names: str, seconds: float = 300) -> None:
        seen: set[str] = set()

        def all_fired() -> bool:
            seen.update(self.firing())
            return seen >= set(names)

        wait_until(all_fired, f"{names} to fire", seconds)

    def until_over(self, *names: str, seconds: float = 300) -> None:
        wait_until(lambda: not self.firing() & set(names), f"{names} to end", seconds)


@contextmanager
def watching(project: Project, data: Path, **settings: str) -> Iterator[Prometheus]:
    """The server of a project, from where it runs itself: containers have names for each other that
    nobody else knows."""
    begin = on_this_machine if project.settings["FLAVOUR"] == "local" else in_its_container
    with begin(project, data, **settings) as watched:
        wait_until(watched.sees_the_server, "Prometheus to see the server", 60)
        yield watched


@contextmanager
def on_this_machine(project: Project, data: Path, **settings: str) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("no prometheus here")
    project.made("monitoring", **settings)
    hurry(project)
    config = project.path / "build" / "monitoring" / "prometheus.yml"
    (port,) = free_ports(1)
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={data}"]
    with (data.parent / f"{data.name}.log").open("w") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Prometheus(project, port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def in_its_container(project: Project, _: Path, **settings: str) -> Iterator[Prometheus]:
    prometheus, alertmanager = free_ports(2)
    project.settings |= {
        "PROMETHEUS_PORT": str(prometheus),
        "ALERTMANAGER_PORT": str(alertmanager),
    }
    project.made("monitoring", **settings)
    watched = Prometheus(project, prometheus)
    watched.hurry()
    try:
        yield watched
    finally:
        containers = map(project.container, SERVICES)
        run("docker", "rm", "--force", "--volumes", *containers)
