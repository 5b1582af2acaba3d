"""What the page shows besides answers: the pipelines served, and how the server is doing."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bundle_door.answers import Answer, as_json
from bundle_door.limits import Load
from bundle_door.paths.routes import Route, open_to_all
from bundle_door.requests import Request
from bundle_door.served import Served
from bundle_door.watching.observed import SLOT_S, Observed, milliseconds
from bundle_serving.process import keeper_notes, sockets
from bundle_serving.protocol import local_http

Named = Mapping[str, str]
# Of each pipeline.
MOST_EVENTS = 30
NOT_KEPT = {"cache-control": "no-store"}
PENDING = re.compile(r'(?m)^nv_inference_pending_request_count{model="([^"]+)".*} (\d+)')
# Of Triton's metrics.cc: of each GPU, where DCGM may ask it; what it may not ask stays 0.
OF_A_GPU = re.compile(r'(?m)^nv_gpu_(\w+){gpu_uuid="([^"]+)"} (\S+)$')


class PageData:
    def __init__(self, run_dir: Path, served: Served, observed: Observed, load: Load) -> None:
        self._run_dir, self._sockets = run_dir, sockets.folder(run_dir)
        self._served, self._observed, self._load = served, observed, load

    def routes(self) -> list[Route]:
        return [
            open_to_all("/page/served.json", GET=self.answer_served),
            open_to_all("/page/live.json", GET=self.live),
        ]

    async def answer_served(self, request: Request, named: Named) -> Answer:
        content = {
            "pipelines": await self._served.pipelines(),
            "limits": {"body_bytes": self._load.limits.body_bytes},
        }
        return as_json(content, headers=NOT_KEPT)

    async def live(self, request: Request, named: Named) -> Answer:
        notes = keeper_notes.read(self._run_dir)
        await self._served.look()
        series = self._observed.recent.as_json()
        history = self._served.history().items()
        told = await self._ask_triton()
        content: dict[str, Any] = {
            "slot_s": SLOT_S,
            "series": [each for each in series if self._served.is_served(each["pipeline"])],
            "over_time": self._observed.recent.over_time(),
            **self._count_all(),
            "errors": list(self._observed.errors),
            "in_flight": self._load.requests,
            "queued": read_queues(told),
            "gpus": read_gpus(told),
            "ready": notes.get("ready"),
            "reason": notes.get("reason", ""),
            "keeper": notes.get("events", [])[-10:],
            "history": {
                name: events[-MOST_EVENTS:]
                for name, events in history
                if self._served.is_served(name)
            },
            "shadows": [
                shadow.sum_up(*candidate)
                for candidate, shadow in sorted(self._observed.shadows.items())
            ],
            "drift": self._observed.tell_drift(),
        }
        return as_json(content, headers=NOT_KEPT)

    def _count_all(self) -> dict[str, Any]:
        """Of whole requests, since the door's start."""
        pipelines = [each for each in self._observed.totals() if not each["version"]]
        return {
            "answered": sum(each["answered"] for each in pipelines),
            "unanswered": sum(each["failed"] for each in pipelines),
            "since": self._observed.began,
            "slowest_ms": milliseconds(self._observed.recent.find_slowest_s()),
        }

    async def _ask_triton(self) -> str:
        """Its metrics; empty while it does not say."""
        try:
            told = await local_http.ask(self._sockets / sockets.METRICS, "GET", "/metrics")
        except OSError:
            return ""
        return told.decode()


def read_queues(metrics: str) -> dict[str, int]:
    """Requests that wait in each model's queue."""
    return {model: int(count) for model, count in PENDING.findall(metrics) if int(count)}


def read_gpus(metrics: str) -> list[dict[str, Any]]:
    """What each does: its share of time, bytes, watts."""
    gpus: dict[str, dict[str, Any]] = {}
    for what, uuid, value in OF_A_GPU.findall(metrics):
        gpus.setdefault(uuid, {"uuid": uuid})[what] = float(value)
    return list(gpus.values())
