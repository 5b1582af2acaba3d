"""The Helm chart renders what kustomize does, of the same files and the same settings."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from bundle_client import __version__
from extensions.kubernetes import kustomization
from extensions.kubernetes.kustomization import SOURCE
from extensions.kubernetes.pods import SERVICE
from extensions.kubernetes.tests.unit.test_kubernetes import (
    REGISTRY,
    Elsewhere,
    Folder,
    Object,
    built,
    one,
    target,
    with_component,
)
from scripts.repository import live, place
from scripts.settings.settings import Settings

__all__ = ["target"]

HELM = os.environ.get("TEST_HELM")
VALUES: Object = yaml.safe_load((SOURCE / "values.yaml").read_text())
SCHEMA = json.loads((SOURCE / "values.schema.json").read_text())
ROLE = "arn:aws:iam::123456789012:role/reads-models"
ON_S3 = {"repository": "s3://bucket/models/live"}
OF_A_GPU = {
    "requests": {"cpu": "2", "memory": "16Gi"},
    "limits": {"memory": "16Gi", "nvidia.com/gpu": "1"},
}


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    if not HELM:
        pytest.skip("no Helm here (TEST_HELM is not set)")
    return subprocess.run([HELM, *words], capture_output=True, text=True)


def template(*words: str, values: Object | None = None, file: Path | None = None) -> list[Object]:
    given = [f"--values={file}"] if file else []
    given += [f"--set-json={name}={json.dumps(value)}" for name, value in (values or {}).items()]
    ran = helm("template", "any", str(SOURCE), *given, *words)
    assert ran.returncode == 0, ran.stderr
    return list(filter(None, yaml.safe_load_all(ran.stdout)))


def comparable(objects: list[Object], tagged: bool = True) -> dict[tuple[str, str], Object]:
    """Without what each has its own way for: secrets, tests, that a claim outlives its release, and
    that pods which are started again read the same settings."""
    text = json.dumps(objects)
    text = re.sub(r"(triton-bundle-(settings|proofs))-[a-z0-9]{10}\b", r"\1", text)
    if not tagged:
        text = text.replace(f"triton-bundle-server:{__version__}", "triton-bundle-server")
        text = text.replace(f"triton-bundle-server-gpu:{__version__}", "triton-bundle-server-gpu")
    found = {}
    for each in json.loads(text):
        annotations = each["metadata"].pop("annotations", {})
        if each["kind"] == "Secret" or "helm.sh/hook" in annotations:
            continue
        found[each["kind"], each["metadata"]["name"]] = each
    (server,) = found["Deployment", SERVICE]["spec"]["template"]["spec"]["containers"]
    if settings := found.pop(("ConfigMap", f"{SERVICE}-settings"), None):
        assert server.pop("envFrom")
        server["env"] += [{"name": n, "value": v} for n, v in sorted(settings["data"].items())]
    return found


@pytest.mark.parametrize(
    ("overlay", "values"),
    [
        ("cpu", {}),
        ("s3", {"s3": ON_S3}),
        ("s3-role", {"s3": ON_S3 | {"role": ROLE}}),
        (
            "gpu",
            {
                "gpu": True,
                "image": {"repository": "triton-bundle-server-gpu"},
                "resources": OF_A_GPU,
            },
        ),
    ],
)
def test_each_overlay_is_a_few_values(overlay: str, values: Object) -> None:
    theirs = comparable(template(values=values), tagged=False)
    assert theirs == comparable(built(SOURCE / "overlays" / overlay))


@pytest.mark.parametrize(
    ("components", "values"),
    [
        ("plain", {"tls": {"enabled": False}}),
        ("gateway", {"gateway": {"enabled": True}}),
        ("monitoring", {"monitoring": {"enabled": True}}),
        ("monitoring plain", {"monitoring.enabled": True, "tls.enabled": False}),
        ("keda", {"autoscaling": {"keda": True}}),
    ],
)
def test_each_component_is_a_value(components: str, values: Object, tmp_path: Path) -> None:
    theirs = comparable(template(values=values), tagged=False)
    ours = with_component(tmp_path / "made", "cpu", *components.split())
    if "plain" in components:  # which the setting INSECURE goes with
        one(ours, "ConfigMap")["data"]["INSECURE"] = "1"
    if components == "keda":  # which by kustomize cannot know
        about = one(ours, "ScaledObject")["spec"]["triggers"][0]["metadata"]
        about["query"] = about["query"].replace("{", '{namespace="default", ')
    assert theirs == comparable(ours)


def test_keda_counts_for_parts_of_a_core() -> None:
    values = {"autoscaling.keda": True, "resources.requests.cpu": "1500m"}
    (trigger,) = one(template(values=values), "ScaledObject")["spec"]["triggers"]
    assert float(trigger["metadata"]["query"].rpartition(" / ")[2]) == 1.5


def test_a_pod_that_is_started_again_reads_the_same_settings() -> None:
    """Also while others come: no object that both read has changed."""
    for path in ("live-kubernetes/old", "live-kubernetes/new"):
        repository = f"s3://bucket/{path}"
        objects = template(values={"s3": {"repository": repository}, "settings": {"KEEP": "$1"}})
        assert "ConfigMap" not in {each["kind"] for each in objects}
        for pod in (one(objects, "Deployment")["spec"]["template"], one(objects, "Pod")):
            (container,) = pod["spec"]["containers"]
            told = {each["name"]: each.get("value") for each in container["env"]}
            assert (told["REPOSITORY"], told["KEEP"]) == (repository, "$$1")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"INSECURE": "1", "CORES": "3", "MEMORY": "5g", "KEEP": "1%", "KEEP_MB": "5000"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.tracing:4319", "START_TIMEOUT": "611.5"},
        {"FLAVOUR": "gpu", "GPU_MEMORY": "20g"},
    ],
    ids=str,
)
def test_what_the_command_writes_is_the_same(
    given: dict[str, str], target: Path, tmp_path: Path
) -> None:
    kustomization.write(Settings.load(given, tmp_path / ".env"), REGISTRY)
    assert comparable(template(file=target / "values.yaml")) == comparable(built(target))


@pytest.mark.parametrize("role", ["", ROLE])
def test_on_s3_too(
    role: str, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "find", lambda _: Elsewhere(Folder("s3://bucket/models/live", {})))
    monkeypatch.setattr(live, "REPOSITORY", tmp_path / "live")
    (tmp_path / "live" / "network").mkdir(parents=True)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    given = {"S3_ROLE": role, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4319"}
    kustomization.write(Settings.load(given, tmp_path / ".env"), REGISTRY)
    objects = built(target)
    assert comparable(template(file=target / "values.yaml")) == comparable(objects)
    names = {each["metadata"]["name"] for each in objects if each["kind"] == "Secret"}
    assert ("triton-bundle-s3" in names) == (not role)


def test_fewer_values_change_one_thing_each() -> None:
    objects = template(
        values={
            "autoscaling": {"enabled": False},
            "replicas": 3,
            "tls": {"secret": "of-cert-manager", "certificate": "tls.crt", "privateKey": "tls.key"},
            "storage": {"storageClass": "nfs", "folder": "mine", "size": "9Gi"},
        }
    )
    spec = one(objects, "Deployment")["spec"]
    assert spec["replicas"] == 3
    assert "HorizontalPodAutoscaler" not in {each["kind"] for each in objects}
    volumes = {each["name"]: each for each in spec["template"]["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["items"][0] == {"key": "tls.crt", "path": "cert.pem"}
    assert "/claim/mine/" in spec["template"]["spec"]["initContainers"][0]["command"][-1]
    claim = one(objects, "PersistentVolumeClaim")["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("nfs", "9Gi")


def test_helm_finds_nothing_to_say_against_it() -> None:
    linted = helm("lint", "--strict", str(SOURCE))
    assert linted.returncode == 0, linted.stdout
    refused = helm("template", "any", str(SOURCE), "--set=replicas=many", "--set=imag.tag=1")
    assert refused.returncode and "replicas" in refused.stderr and "imag" in refused.stderr


def test_the_schema_knows_every_value() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    assert {*SCHEMA["properties"]} == {*VALUES, "global"}
    for name, value in VALUES.items():
        known: Any = SCHEMA["properties"][name]
        if isinstance(value, dict) and "properties" in known:
            assert {*known["properties"]} == {*value}, name


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((SOURCE / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
