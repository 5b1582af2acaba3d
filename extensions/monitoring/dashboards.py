"""Dashboards for Grafana, and what makes it find them and Prometheus: a folder to mount as its
/etc/grafana/provisioning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.base import files

SOURCE = {"type": "prometheus", "uid": "triton-bundle"}
# Two panels beside each other.
WIDTH, HEIGHT = 12, 8
# Grafana's own: long enough for a rate at the resolution that is shown.
RATE = "$__rate_interval"

SECONDS, SHARE, BYTES, A_SECOND, COUNT = "s", "percentunit", "bytes", "reqps", "short"
PER_VERSION = "{{pipeline}} v{{version}}"
PER_MODEL = "{{model}} v{{version}}"


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    queries: dict[str, str]  # by legend
    stacked: bool = False


def rate(name: str, of: str = "", by: str = "") -> str:
    """A counter's, a second."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({name}{of}[{RATE}]))"


def mean(name: str, by: str) -> str:
    """A histogram's."""
    return f"{rate(f'{name}_sum', by=by)} / {rate(f'{name}_count', by=by)}"


def quantile(share: float, name: str, by: str, of: str = "") -> str:
    return f"histogram_quantile({share:g}, {rate(f'{name}_bucket', of, f'{by}, le')})"


REQUESTS, STEPS = "bundle_request_duration_seconds", "bundle_step_duration_seconds"
ANSWERED = '{outcome="ok"}'
P = "pipeline_version:bundle_request_duration_seconds:"
QUEUED = "nv_inference_queue_duration_us"

OVERVIEW = [
    Panel("Requests", A_SECOND, {
        "{{protocol}}: {{outcome}}": rate(f"{REQUESTS}_count", by="protocol, outcome"),
    }),
    Panel("Time to an answer", SECONDS, {
        f"{p}, {PER_VERSION}": f"{P}{p}" for p in ("p50", "p95", "p99")
    }),
    Panel("Objectives: what missed them, of the last hour", SHARE, {
        "not answered (0.1% allowed)": "bundle:unanswered:ratio_rate1h",
        "late (1% allowed)": "bundle:slow:ratio_rate1h",
    }),
    Panel("Alerts, ready", COUNT, {
        "alerts": 'count(ALERTS{alertstate="firing"}) or vector(0)',
        "ready": "bundle_ready",
        "restored: {{what}}": "increase(bundle_restored_total[1h])",
    }),
    Panel("In flight, in queues", COUNT, {
        "in flight over HTTP": "bundle_http_requests_in_flight",
        "{{model}}": "sum by (model) (nv_inference_pending_request_count)",
    }),
    Panel("Refused", A_SECOND, {"{{reason}}": rate("bundle_refused_total", by="reason")}),
    Panel("Memory", BYTES, {
        "limit": "bundle_memory_limit_bytes",
        "used": "bundle_memory_used_bytes",
        "{{process}}": "bundle_process_resident_memory_bytes",
    }),
    Panel("Disk", BYTES, {
        "size": "bundle_disk_size_bytes",
        "free": "bundle_disk_free_bytes",
    }),
]  # fmt: skip

PIPELINES = [
    Panel("Requests", A_SECOND, {
        PER_VERSION: rate(f"{REQUESTS}_count", by="pipeline, version"),
    }),
    Panel("Not answered", A_SECOND, {
        f"{PER_VERSION}: {{{{outcome}}}}": rate(
            f"{REQUESTS}_count", '{outcome!="ok"}', "pipeline, version, outcome"
        ),
    }),
    Panel("p50", SECONDS, {PER_VERSION: f"{P}p50"}),
    Panel("p99", SECONDS, {PER_VERSION: f"{P}p99"}),
    Panel("Confidence: the median", SHARE, {
        PER_MODEL: quantile(0.5, "bundle_answer_confidence_ratio", "model, version"),
    }),
    Panel("Drift: under 0.1 stable, over 0.25 a shift", COUNT, {
        f"{PER_MODEL}: {{{{of}}}}": "bundle_answer_drift_index",
    }),
    Panel("Pictures: megapixels", COUNT, {
        f"p{100 * share:g}": f"histogram_quantile({share}, "
        f"{rate('bundle_picture_megapixels_bucket', by='le')})"
        for share in (0.5, 0.99)
    }),
]  # fmt: skip

ROLLOUT = [
    Panel("Live version", COUNT, {"{{pipeline}}": "bundle_live_version"}),
    Panel("Live for", SECONDS, {
        "{{pipeline}}": "time() - bundle_live_since_timestamp_seconds",
    }),
    Panel("Requests, by version", A_SECOND, {
        PER_VERSION: rate(f"{REQUESTS}_count", by="pipeline, version"),
    }),
    Panel("Share answered, by version", SHARE, {
        PER_VERSION: f"{rate(f'{REQUESTS}_count', ANSWERED, 'pipeline, version')} / "
        f"{rate(f'{REQUESTS}_count', by='pipeline, version')}",
    }),
    Panel("p99, by version", SECONDS, {PER_VERSION: f"{P}p99"}),
    Panel("p99 now, over that an hour ago", COUNT, {
        # Whatever the version was then; where there is nothing of then, itself.
        "{{pipeline}}": f"max by (pipeline) ({P}p99) / "
        f"(max by (pipeline) ({P}p99 offset 1h) or max by (pipeline) ({P}p99))",
    }),
    Panel("Network's time, by version", SECONDS, {PER_MODEL: mean(STEPS, "model, version")}),
    Panel("Confidence: the median, by version", SHARE, {
        PER_MODEL: quantile(0.5, "bundle_answer_confidence_ratio", "model, version"),
    }),
]  # fmt: skip

WATERFALL = [
    Panel("Where the time goes: mean of an execution", SECONDS, {
        "{{model}}": mean(STEPS, "model"),
    }, stacked=True),
    Panel("Waiting in queues: mean of a request", SECONDS, {
        "{{model}}": f"{rate(QUEUED, by='model')} / 1e6 / "
        f"{rate('nv_inference_request_success', by='model')}",
    }, stacked=True),
    Panel("p99 of an execution", SECONDS, {PER_MODEL: quantile(0.99, STEPS, "model, version")}),
    Panel("Share of the time busy, of one process", SHARE, {
        "{{model}}": rate(f"{STEPS}_sum", by="model"),
    }),
    Panel("Requests in a batch: mean", COUNT, {
        "{{model}}": mean("bundle_step_batch_size", "model"),
    }),
    Panel("Size at which pictures are decoded: mean", SHARE, {
        "of their width": f"{rate('bundle_picture_decoded_ratio_sum')} / "
        f"{rate('bundle_picture_decoded_ratio_count')}",
    }),
]  # fmt: skip

GPU = [
    Panel("Busy", SHARE, {"{{gpu_uuid}}": "nv_gpu_utilization"}),
    Panel("Memory", BYTES, {
        "{{gpu_uuid}}: used": "nv_gpu_memory_used_bytes",
        "{{gpu_uuid}}: total": "nv_gpu_memory_total_bytes",
    }),
    Panel("Power", "watt", {
        "{{gpu_uuid}}: used": "nv_gpu_power_usage",
        "{{gpu_uuid}}: limit": "nv_gpu_power_limit",
    }),
    Panel("Computing: mean of an execution", SECONDS, {
        "{{model}}": f"{rate('nv_inference_compute_infer_duration_us', by='model')} / 1e6 / "
        f"{rate('nv_inference_exec_count', by='model')}",
    }, stacked=True),
]  # fmt: skip

ALL = {
    "Overview": OVERVIEW,
    "Pipelines and versions": PIPELINES,
    "Rollout, before and after": ROLLOUT,
    "Steps": WATERFALL,
    "GPU": GPU,
}


def write(folder: Path, prometheus: str) -> None:
    for title, panels in ALL.items():
        text = json.dumps(dashboard(title, panels), indent=1)
        files.write(folder / "dashboards" / f"{_uid(title)}.json", text + "\n")
    datasource = {
        **{"name": "Prometheus of triton-bundle", "uid": SOURCE["uid"], "type": "prometheus"},
        **{"access": "proxy", "url": prometheus, "jsonData": {"timeInterval": "15s"}},
    }
    provider = {
        "name": "triton-bundle",
        "folder": "triton-bundle",
        "type": "file",
        "options": {"path": "/etc/grafana/provisioning/dashboards"},
    }
    _write_yaml(folder / "datasources" / "prometheus.yml", datasources=[datasource])
    _write_yaml(folder / "dashboards" / "provider.yml", providers=[provider])


def _write_yaml(path: Path, **content: Any) -> None:
    files.write(path, yaml.safe_dump({"apiVersion": 1, **content}, sort_keys=False))


def dashboard(title: str, panels: list[Panel]) -> dict[str, Any]:
    return {
        "uid": f"triton-bundle-{_uid(title)}",
        "title": title,
        "tags": ["triton-bundle"],
        "schemaVersion": 37,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "panels": [_as_json(number, panel) for number, panel in enumerate(panels)],
    }


def _uid(title: str) -> str:
    return title.split()[0].strip(",").lower()


def _as_json(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, 2)
    custom = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.stacked else {}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": custom},
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend}
            for place, (legend, expr) in enumerate(panel.queries.items())
        ],
    }


def queries() -> Iterator[tuple[str, str, str]]:
    """Each with its dashboard and panel."""
    for title, panels in ALL.items():
        for panel in panels:
            for expr in panel.queries.values():
                yield title, panel.title, expr
