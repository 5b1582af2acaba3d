"""Is the p99 that the dashboard shows a client's? perf_analyzer asks what is up over HTTP for two
minutes, and then the Prometheus of `make monitoring` is asked the dashboard's own query.

    python -m extensions.monitoring.percentiles --image mug.jpg
"""

import json
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from extensions.monitoring import dashboards
from scripts.artefacts.exporting import start
from scripts.base import console
from scripts.base.errors import UserError
from scripts.measuring import perf_analyzer
from scripts.measuring.photos import Inputs
from scripts.measuring.workload import Configuration, Target
from scripts.recipes import pipelines
from scripts.rollout import rollout

SECONDS = 120


def main(image: Path, concurrency: int = 2, prometheus: str = "http://127.0.0.1:9090") -> None:
    ask(prometheus, "up")  # before the minutes that the rest takes
    up = rollout.find_running_server(pipelines.main())
    pipeline = up.version.pipeline.ensemble
    target = Target.for_model(pipeline, pipeline, up.server.http, up.server.grpc)
    inputs = Inputs(image.name, (image.read_bytes(),))
    asked = Configuration(target, inputs, "http", 1, concurrency)
    with TemporaryDirectory() as folder:
        theirs = perf_analyzer.at_hand(up.server, Path(folder)).run(asked, SECONDS).p99
    ours = on_the_dashboard(prometheus, pipeline)
    console.note(
        f"p99: {theirs:.1f} ms for perf_analyzer, {ours:.1f} ms on the dashboard "
        f"({ours / theirs:.2f} times)"
    )


def on_the_dashboard(prometheus: str, pipeline: str) -> float:
    """In milliseconds, over the time that was just measured."""
    expr = dashboards.quantile(0.99, dashboards.REQUESTS, "pipeline", dashboards.ANSWERED)
    found = ask(prometheus, expr.replace(dashboards.RATE, f"{SECONDS}s"))
    (p99,) = (each["value"][1] for each in found if each["metric"]["pipeline"] == pipeline)
    return 1000 * float(p99)


def ask(prometheus: str, query: str) -> Any:
    try:
        where = f"{prometheus}/api/v1/query?query={quote(query)}"
        with urllib.request.urlopen(where, timeout=30) as answer:
            return json.load(answer)["data"]["result"]
    except (OSError, ValueError) as fault:
        raise UserError(
            f"no Prometheus answers at {prometheus} ({fault})", "make monitoring"
        ) from None


if __name__ == "__main__":
    start(main)
