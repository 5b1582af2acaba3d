"""Prometheus and Alertmanager beside the server that runs: percentiles, objectives, alerts, and
dashboards for Grafana.

    make monitoring                    LATENCY_MS=500: 99% of the answers must come within that

Without Docker it writes their configuration only.
"""

from extensions.monitoring import containers
from extensions.monitoring.settings import alertmanager_port, prometheus_port
from scripts.base import console, lock
from scripts.base.paths import ROOT
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks import state


def main() -> None:
    asked = arguments.load()
    with lock.one_at_a_time():
        known = state.require()
        known.require_one_server()
        settings = Settings.load().fill_from(known.settings)
        late = containers.write(known, settings, asked.latency_ms)
        if known.flavour != "local":
            containers.start(settings)
    folder = containers.FOLDER.relative_to(ROOT)
    console.note(f"objectives: 99.9% of the requests answered, 99% of the answers in {late:.0f} ms")
    if known.flavour == "local":
        console.note(f"wrote {folder}: prometheus --config.file={folder}/prometheus.yml")
    else:
        console.note(
            f"Prometheus and its alerts: http://127.0.0.1:{prometheus_port.value_in(settings)}/alerts"
        )
        console.note(f"Alertmanager: http://127.0.0.1:{alertmanager_port.value_in(settings)}")
    console.note(f"dashboards for Grafana: {folder}/grafana (extensions/monitoring/README.md)")
