"""Dashboards for Grafana, and what makes it find them and Prometheus: a folder to mount as its
/etc/grafana/provisioning."""

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


GRAPH, FIGURE, TIMELINE = "timeseries", "stat", "state-timeline"
# What Grafana shows of all pipelines, until one is chosen.
PIPELINE = "$pipeline"
CHOSEN = f'{{pipeline=~"{PIPELINE}"}}'
GOOD, WARNS, BAD = "green", "orange", "red"


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    queries: dict[str, str]  # by legend
    stacked: bool = False
    kind: str = GRAPH
    # From each value on, another colour; on a graph, a line.
    limits: tuple[tuple[float, str], ...] = ()
    # Of an answer of yes or no, the words.
    words: tuple[str, str] | None = None


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
OF_CHOSEN = f'{{outcome="ok", pipeline=~"{PIPELINE}"}}'
NOT_ANSWERED = f'{{outcome!="ok", pipeline=~"{PIPELINE}"}}'
P = "pipeline_version:bundle_request_duration_seconds:"
QUEUED = "nv_inference_queue_duration_us"

ALERTS = 'count(ALERTS{alertstate="firing"}) or vector(0)'
YES_OR_NO = "no", "yes"

OVERVIEW = [
    Panel("Ready", COUNT, {"": "bundle_ready"}, kind=FIGURE, limits=((1, GOOD),), words=YES_OR_NO),
    Panel("Alerts", COUNT, {"": ALERTS}, kind=FIGURE, limits=((1, BAD),)),
    Panel("Not answered, of the last hour", SHARE, {"": "bundle:unanswered:ratio_rate1h"},
          kind=FIGURE, limits=((0.001, BAD),)),
    Panel("p99", SECONDS, {"": f"max({P}p99)"}, kind=FIGURE),
    Panel("Ready, over time", COUNT, {"ready": "bundle_ready"}, kind=TIMELINE,
          limits=((1, GOOD),), words=YES_OR_NO),
    Panel("Alerts, over time", COUNT, {
        "{{alertname}}": 'max by (alertname) (ALERTS{alertstate="firing"}) or vector(0)',
    }, kind=TIMELINE, limits=((1, BAD),), words=("none", "firing")),
    Panel("Requests", A_SECOND, {
        "{{protocol}}: {{outcome}}": rate(f"{REQUESTS}_count", by="protocol, outcome"),
    }),
    Panel("Time to an answer", SECONDS, {
        f"{p}, {PER_VERSION}": f"{P}{p}" for p in ("p50", "p95", "p99")
    }),
    Panel("Objectives: what missed them, of the last hour", SHARE, {
        "not answered (0.1% allowed)": "bundle:unanswered:ratio_rate1h",
        "late (1% allowed)": "bundle:slow:ratio_rate1h",
    }, limits=((0.001, WARNS), (0.01, BAD))),
    Panel("Restored by the keeper, in an hour", COUNT, {
        "{{what}}": "increase(bundle_restored_total[1h])",
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
        PER_VERSION: rate(f"{REQUESTS}_count", CHOSEN, "pipeline, version"),
    }),
    Panel("Not answered", A_SECOND, {
        f"{PER_VERSION}: {{{{outcome}}}}": rate(
            f"{REQUESTS}_count", NOT_ANSWERED, "pipeline, version, outcome"
        ),
    }),
    Panel("p50", SECONDS, {PER_VERSION: f"{P}p50{CHOSEN}"}),
    Panel("p99", SECONDS, {PER_VERSION: f"{P}p99{CHOSEN}"}),
    Panel("Confidence: the median", SHARE, {
        PER_MODEL: quantile(0.5, "bundle_answer_confidence_ratio", "model, version"),
    }),
    Panel("Drift: under 0.1 stable, over 0.25 a shift", COUNT, {
        f"{PER_MODEL}: {{{{of}}}}": "bundle_answer_drift_index",
    }, limits=((0.1, WARNS), (0.25, BAD))),
    Panel("Pictures: megapixels", COUNT, {
        f"p{100 * share:g}": f"histogram_quantile({share}, "
        f"{rate('bundle_picture_megapixels_bucket', by='le')})"
        for share in (0.5, 0.99)
    }),
]  # fmt: skip

ROLLOUT = [
    Panel("Live version", COUNT, {"{{pipeline}}": f"bundle_live_version{CHOSEN}"}, kind=TIMELINE),
    Panel("Live for", SECONDS, {
        "{{pipeline}}": f"time() - bundle_live_since_timestamp_seconds{CHOSEN}",
    }, kind=FIGURE),
    Panel("Requests, by version", A_SECOND, {
        PER_VERSION: rate(f"{REQUESTS}_count", CHOSEN, "pipeline, version"),
    }),
    Panel("Share answered, by version", SHARE, {
        # Also of one that answers nothing.
        PER_VERSION: f"({rate(f'{REQUESTS}_count', OF_CHOSEN, 'pipeline, version')} or "
        f"0 * {rate(f'{REQUESTS}_count', CHOSEN, 'pipeline, version')}) / "
        f"{rate(f'{REQUESTS}_count', CHOSEN, 'pipeline, version')}",
    }),
    Panel("p99, by version", SECONDS, {PER_VERSION: f"{P}p99{CHOSEN}"}),
    Panel("p99 now, over that an hour ago", COUNT, {
        # Whatever the version was then; where there is nothing of then, itself.
        "{{pipeline}}": f"max by (pipeline) ({P}p99{CHOSEN}) / "
        f"(max by (pipeline) ({P}p99{CHOSEN} offset 1h) or max by (pipeline) ({P}p99{CHOSEN}))",
    }, limits=((2, BAD),)),
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
    Panel("Rows in a batch: mean", COUNT, {
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
    Panel("Computing: mean of a request", SECONDS, {
        "{{model}}": f"{rate('nv_inference_compute_infer_duration_us', by='model')} / 1e6 / "
        f"{rate('nv_inference_request_success', by='model')}",
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


# Above each dashboard: of which pipelines it is.
CHOICE = {
    "name": "pipeline",
    "label": "Pipeline",
    "type": "query",
    "datasource": SOURCE,
    "query": f"label_values({REQUESTS}_count, pipeline)",
    "multi": True,
    "includeAll": True,
    "allValue": ".*",
    "refresh": 2,  # with the time range
    "current": {"text": "All", "value": "$__all"},
}
# A line on each graph where another version became the live one.
ROLLOUTS = {
    "name": "Rollouts",
    "datasource": SOURCE,
    "enable": True,
    "iconColor": "blue",
    "expr": f"bundle_live_since_timestamp_seconds{CHOSEN} * 1000",
    "titleFormat": "{{pipeline}}: another version is live",
    "useValueForTime": True,
}


def dashboard(title: str, panels: list[Panel]) -> dict[str, Any]:
    return {
        "uid": f"triton-bundle-{_uid(title)}",
        "title": title,
        "tags": ["triton-bundle"],
        "schemaVersion": 37,
        "editable": True,
        "refresh": "30s",
        "templating": {"list": [CHOICE]},
        "annotations": {"list": [ROLLOUTS]},
        "time": {"from": "now-1h", "to": "now"},
        "panels": [*_lay_out(panels)],
    }


def _uid(title: str) -> str:
    return title.split()[0].strip(",").lower()


def _lay_out(panels: list[Panel]) -> Iterator[dict[str, Any]]:
    """Figures four to a row, all others two."""
    x = y = 0
    height = 0
    for number, panel in enumerate(panels):
        width, tall = (WIDTH // 2, HEIGHT // 2) if panel.kind == FIGURE else (WIDTH, HEIGHT)
        if x + width > 2 * WIDTH or (x and tall != height):
            x, y = 0, y + height
        height = tall
        yield _as_json(number, panel, {"x": x, "y": y, "w": width, "h": tall})
        x += width


def _as_json(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "custom": _style(panel)}
    if panel.kind == GRAPH:
        defaults["min"] = 0
    if panel.limits:
        below = BAD if panel.words and panel.limits[0][1] == GOOD else GOOD
        steps: list[dict[str, Any]] = [{"value": None, "color": below}]
        steps += [{"value": value, "color": colour} for value, colour in panel.limits]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["color"] = {"mode": "palette-classic" if panel.kind == GRAPH else "thresholds"}
    if panel.words:
        options = {str(at): {"text": word, "index": at} for at, word in enumerate(panel.words)}
        defaults["mappings"] = [{"type": "value", "options": options}]
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend}
            for place, (legend, expr) in enumerate(panel.queries.items())
        ],
    }


def _style(panel: Panel) -> dict[str, Any]:
    if panel.kind != GRAPH:
        return {}
    stacked = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.stacked else {}
    return stacked | ({"thresholdsStyle": {"mode": "line"}} if panel.limits else {})
