"""The rules of Prometheus, by its own promtool; the dashboards; and what the alerts stand on."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog import encoder, plugins
from grafana_foundation_sdk.models import dashboard as grafana

from bundle_door.access.certificate import ends, ensure
from bundle_door.paths.metrics import Room, find_memory, of_keeper
from bundle_door.watching.measures import text
from bundle_serving.process.keeper_notes import Notes
from extensions.monitoring import containers as monitoring
from extensions.monitoring import dashboards, percentiles
from extensions.monitoring.tests.prometheus import list_queries
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from tests.project import ROOT

TESTS = Path(__file__).parent / "alerts.yml"
GROUPS = yaml.safe_load(monitoring.rules())["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
RECORDED = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
QUERIES = [query for _, _, query in list_queries()]

GB = 2**30
# Of an annotation, what Prometheus' own plugin reads and Grafana's schema leaves to it.
OF_THE_DATA_SOURCE = ("/titleFormat", "/useValueForTime")


def test_without_prometheus_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no Prometheus answers") as refused:
        percentiles.main(tmp_path, prometheus="http://127.0.0.1:1")
    assert refused.value.remedy == "make monitoring"


def promtool(*words: str | Path) -> None:
    if not (program := shutil.which("promtool")):
        pytest.skip("no promtool here")
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid_and_read_by_the_configuration() -> None:
    promtool("check", "config", monitoring.SOURCE / "prometheus.yml")


def test_each_alert_fires_and_ends() -> None:
    promtool("test", "rules", TESTS)
    text = TESTS.read_text()
    assert [rule["alert"] for rule in ALERTS if f'"{rule["alert"]}"' not in text] == []


def test_each_alert_says_what_to_do() -> None:
    assert len(ALERTS) > 10
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "remedy"}, rule["alert"]


def write_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "FOLDER", folder)
    seen = SimpleNamespace(certificate=None, api_key="")
    started_with = SimpleNamespace(metrics_port=8002)
    known: Any = SimpleNamespace(
        flavour="cpu", settings_at_start=started_with, where=lambda _: seen
    )
    monitoring.write(known, Settings.load({}, Path("none")), None)


def test_a_group_that_shares_the_checkout_may_write_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o775)
    write_it(tmp_path, monkeypatch)
    assert tmp_path.stat().st_mode & 0o777 == 0o775


@pytest.mark.usefixtures("umask_077")
def test_containers_read_it_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_it(tmp_path / "monitoring", monkeypatch)
    for path in (tmp_path / "monitoring", *(tmp_path / "monitoring").rglob("*")):
        assert path.stat().st_mode & 0o005 == (0o005 if path.is_dir() else 0o004), path


def test_another_latency_is_in_each_place() -> None:
    assert monitoring.nearest(0.2) == 0.2 and monitoring.nearest(0.48) == 0.501
    changed = monitoring.rules(0.02)
    assert changed.count("0.02") == monitoring.rules().count("0.501") and "0.501" not in changed


def test_every_query_is_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query.replace(dashboards.RATE, "5m")}
        for number, query in enumerate(QUERIES)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", file)


def test_what_panels_show(tmp_path: Path) -> None:
    """Triton counts computing once a request, eight of which are a batch here; and version 2
    answers nothing."""
    requests = dashboards.REQUESTS + '_count{pipeline="p", version="%s", outcome="%s"}'
    series = {
        'nv_inference_request_success{model="m"}': "0+80x40",
        'nv_inference_exec_count{model="m"}': "0+10x40",
        'nv_inference_compute_infer_duration_us{model="m"}': f"0+{80 * 5000}x40",
        requests % (1, "ok"): "0+10x40",
        requests % (2, "failed"): "0+10x40",
    }
    shown: dict[str, dict[str, float]] = {
        "Computing: mean of a request": {'{model="m"}': 0.005},
        "Share answered, by version": {
            '{pipeline="p", version="1"}': 1, '{pipeline="p", version="2"}': 0
        },
    }  # fmt: skip
    queries = {
        panel: query.replace(dashboards.RATE, "5m")
        for _, panel, query in list_queries()
        if panel in shown
    }
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": queries[panel], "eval_time": "10m",
             "exp_samples": [{"labels": of, "value": value} for of, value in found.items()]}
            for panel, found in shown.items()
        ],
    }  # fmt: skip
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"tests": [test]}))
    promtool("test", "rules", file)


def test_what_is_asked_for_is_documented() -> None:
    asked = " ".join([*QUERIES, *(rule["expr"] for group in GROUPS for rule in group["rules"])])
    named = set(re.findall(r"(?<![\w:])bundle_\w+", asked))
    documented = (ROOT / "docs" / "metrics.md").read_text()
    assert [
        name for name in named if re.sub("_(bucket|sum|count)$", "", name) not in documented
    ] == []
    assert set(re.findall(r"\w+:\w+:\w+", asked)) <= RECORDED


def test_grafana_finds_its_files(tmp_path: Path) -> None:
    dashboards.write(tmp_path, "http://prometheus:9090")
    (source,) = yaml.safe_load((tmp_path / "datasources/prometheus.yml").read_text())["datasources"]
    boards: list[dict[str, Any]] = [
        json.loads(path.read_text()) for path in (tmp_path / "dashboards").glob("*.json")
    ]
    assert {board["title"] for board in boards} == dashboards.ALL.keys()
    assert len({board["uid"] for board in boards}) == len(boards)
    for board in boards:
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}


def test_grafana_knows_every_key() -> None:
    """Its own types, which it generates from its schema, drop what they do not know."""
    plugins.register_default_plugins()
    for title, panels in dashboards.ALL.items():
        ours = dashboards.dashboard(title, panels)
        read = grafana.Dashboard.from_json(ours)
        theirs = json.loads(encoder.JSONEncoder().encode(read))
        kept = [place for place in lost(ours, theirs) if not place.endswith(OF_THE_DATA_SOURCE)]
        assert kept == []
    assert list(lost({"a": [{"b": 1}]}, {"a": [{"b": 2, "c": 3}]})) == ["/a/0/b"]


def test_a_dashboard_shows_states_limits_rollouts_and_one_pipeline() -> None:
    boards = {
        title: dashboards.dashboard(title, panels) for title, panels in dashboards.ALL.items()
    }
    kinds = {panel["type"] for board in boards.values() for panel in board["panels"]}
    assert kinds == {"timeseries", "stat", "state-timeline"}
    for board in boards.values():
        (choice,), (rollouts,) = board["templating"]["list"], board["annotations"]["list"]
        assert choice["name"] == "pipeline" and "$pipeline" in rollouts["expr"]
        places = [panel["gridPos"] for panel in board["panels"]]
        covered = [(x, y) for at in places for x in range(at["x"], at["x"] + at["w"])
                   for y in range(at["y"], at["y"] + at["h"])]  # fmt: skip
        assert len(covered) == len({*covered}) and max(x for x, _ in covered) < 24
    drawn = [panel for panel in boards["Pipelines and versions"]["panels"]
             if panel["fieldConfig"]["defaults"]["custom"].get("thresholdsStyle")]  # fmt: skip
    (drift,) = drawn
    steps = drift["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [each["value"] for each in steps] == [None, 0.1, 0.25]


def lost(ours: Any, theirs: Any, place: str = "") -> Iterator[str]:
    """Where theirs lacks something of ours; it may have more."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs.get(key), f"{place}/{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, value in enumerate(ours):
            yield from lost(value, theirs[number], f"{place}/{number}")
    elif ours != theirs:
        yield place


def machine(proc: Path, group: str) -> None:
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(group)
    (proc / "meminfo").write_text(f"MemTotal: {8 * GB // 1024} kB\nMemAvailable: {GB // 1024} kB\n")


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_memory_of_a_container_and_of_a_machine(tmp_path: Path) -> None:
    """`__` stands for a dot."""
    machine(tmp_path / "proc", "0::/\n")
    write(
        tmp_path / "v2",
        memory__max=4 * GB,
        memory__current=3 * GB,
        memory__stat=f"active_file 1\ninactive_file {GB}",
    )
    assert find_memory(tmp_path / "v2", tmp_path / "proc") == (2 * GB, 4 * GB)
    write(
        tmp_path / "v1" / "memory",
        memory__limit_in_bytes=4 * GB,
        memory__usage_in_bytes=3 * GB,
        memory__stat=f"inactive_file 1\ntotal_inactive_file {GB}",
    )
    assert find_memory(tmp_path / "v1", tmp_path / "proc") == (2 * GB, 4 * GB)
    write(tmp_path / "none", memory__max="max")
    assert find_memory(tmp_path / "none", tmp_path / "proc") == (7 * GB, 8 * GB)


def test_memory_where_a_group_around_the_servers_may_use_less(tmp_path: Path) -> None:
    """As systemd lays them out for a user's service; `__` stands for a dot."""
    of_user = "user.slice/user-1000.slice"
    own = f"{of_user}/user@1000.service/app.slice/server.service"
    machine(tmp_path / "proc", f"0::/{own}\n")
    groups = tmp_path / "groups"
    write(groups / own, memory__max=6 * GB, memory__current=2 * GB, memory__stat="inactive_file 0")
    of_all = {"memory__current": 3 * GB, "memory__stat": f"inactive_file {GB // 2}"}
    write(groups / of_user, memory__max=4 * GB, **of_all)
    write(groups / "user.slice", memory__max="max", **of_all)
    assert find_memory(groups, tmp_path / "proc") == (3 * GB - GB // 2, 4 * GB)


def test_when_a_certificate_ends(tmp_path: Path) -> None:
    ensure(tmp_path, ["localhost"])
    shown = ends(tmp_path / "cert.pem")
    assert shown and 824 < (shown - time.time()) / 86400 < 826
    name = "bundle_certificate_expires_timestamp_seconds"
    room = Room(tmp_path, tmp_path / "cert.pem")
    # Envoy goes on with the one that it started with.
    (tmp_path / "cert.pem").write_text("a renewed one")
    assert f"{name} {shown}" in text(room.families())
    assert name not in text(Room(tmp_path, None).families())


def test_what_lacks_a_process_is_in_the_metrics(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.lacks(["resnet50_onnx"])
    assert 'bundle_model_lacks_process{model="resnet50_onnx"} 1' in text(of_keeper(tmp_path))
    notes.lacks([])
    assert "lacks" not in text(of_keeper(tmp_path))
