"""deploy/kubernetes: valid for the newest releases of Kubernetes, restricted, and the same as
compose.yaml. No API server is asked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate
import pytest
import yaml

from bundle_client import __version__
from bundle_door.access import key_file
from extensions.kubernetes import applied, claim, kustomization
from extensions.kubernetes.kustomization import BUILT_WITH, MARK, SOURCE, quantity
from extensions.kubernetes.preflight import CLAIM
from extensions.kubernetes.stack import KubernetesStack
from extensions.kubernetes.tests.unit.test_pods import make_pod
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.repository import archive, history, live, place
from scripts.rollout import proofs
from scripts.settings.settings import DOOR, Settings
from scripts.settings.settings import names as names_of
from scripts.stacks import admin_key, exposure

OVERLAYS = ("cpu", "gpu", "s3", "s3-role")
JOBS = ("cpu", "gpu")
NEWEST = sorted(
    {tuple(map(int, each.split(".")[:2])) for each in kubernetes_validate.utils.all_versions()}
)[-3:]
# Not Kubernetes' own: their schemas are those of the CustomResourceDefinitions of their projects.
FOREIGN = ("gateway.networking.k8s.io", "monitoring.coreos.com", "keda.sh", "serving.kserve.io")
CRDS = os.environ.get("TEST_CRDS")

Object = dict[str, Any]


def built(folder: Path) -> list[Object]:
    if shutil.which("kustomize"):
        command = ["kustomize", "build"]
    elif shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    else:
        pytest.skip("neither kustomize nor kubectl is installed")
    ran = subprocess.run([*command, str(folder)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return list(yaml.safe_load_all(ran.stdout))


def one(objects: list[Object], kind: str) -> Object:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def pod(overlay: str) -> Object:
    spec: Object = one(built(SOURCE / "overlays" / overlay), "Deployment")["spec"]["template"][
        "spec"
    ]
    return spec


def job(name: str) -> Object:
    spec: Object = one(built(SOURCE / "jobs" / name), "Job")["spec"]["template"]["spec"]
    return spec


# Between the containers of one machine alone.
RELAY = {"RELAY_FOLDER"}, {"/run/ports"}


def compose_server(*names: str) -> Object:
    """The service, as its files say; later ones add to the earlier."""
    server: Object = {}
    for name in names:
        # Compose's own tag.
        text = (ROOT / name).read_text().replace("!override", "").replace("!reset", "")
        server |= yaml.safe_load(text)["services"]["server"]
    return server


def bare(value: str) -> str:
    """Compose's ${NAME:-default} is the default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("release", NEWEST, ids=str)
def test_every_object_fits_the_newest_three_releases(
    overlay: str, release: tuple[int, int]
) -> None:
    kinds = set()
    for each in built(SOURCE / "overlays" / overlay):
        kubernetes_validate.validate(each, "{}.{}".format(*release), strict=True)
        kinds.add(each["kind"])
    assert {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"} <= kinds


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("release", NEWEST, ids=str)
def test_every_job_fits_them_too(name: str, release: tuple[int, int]) -> None:
    for each in built(SOURCE / "jobs" / name):
        kubernetes_validate.validate(each, "{}.{}".format(*release), strict=True)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_runs_the_steps_of_compose(name: str) -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    if name == "gpu":
        text = (ROOT / "compose.gpu.yaml").read_text()
        for service, differs in yaml.safe_load(re.sub("!override|!reset", "", text))[
            "services"
        ].items():
            services[service] = services.get(service, {}) | differs
    spec = job(name)
    steps = {each["name"]: each for each in (*spec["initContainers"], *spec["containers"])}
    assert steps.pop("checkout")["image"] == steps["layout"]["image"]
    for step, container in steps.items():
        theirs = " ".join(services[step]["command"]).removeprefix("as-owner ")
        ours = " ".join(container["command"])
        assert re.sub(r"\$\((\w+)\)", r"\1", ours) == re.sub(r"\$\{(\w+)[^}]*\}", r"\1", theirs)
    assert [*steps] == [
        *("export", "engine"),
        *(("candidate", "gate") if name == "gpu" else ()),
        "layout",
    ]
    settings = one(built(SOURCE / "jobs" / name), "ConfigMap")["data"]
    asked = {each.partition("=")[0] for each in services["layout"]["environment"]}
    assert asked <= {*settings} | {"REPOSITORY", "FROM"}
    if name == "cpu":
        defaults = Settings.load({}, Path("/none"))
        assert settings == {"FLAVOUR": "cpu"} | {each: defaults[each] for each in BUILT_WITH}


def test_nvidias_image_finds_its_own_packages() -> None:
    """It has DALI by PYTHONPATH."""
    spec = job("gpu")
    served = (
        each for each in spec["initContainers"] if each["image"] == "triton-bundle-server-gpu"
    )
    for container in served:
        assert "PYTHONPATH" not in {each["name"] for each in container.get("env", ())}


def test_a_rollout_needs_no_further_gpu() -> None:
    server = one(built(SOURCE / "overlays" / "gpu"), "Deployment")
    assert server["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_wrong_field_would_be_found() -> None:
    server = one(built(SOURCE / "base"), "Deployment")
    server["spec"]["template"]["spec"]["containers"][0]["readOnly"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(server, "{}.{}".format(*NEWEST[-1]), strict=True)


@pytest.mark.parametrize("component", ["gateway", "monitoring", "keda"])
def test_components_fit_on_every_overlay(component: str, tmp_path: Path) -> None:
    for overlay in OVERLAYS:
        objects = with_component(tmp_path / overlay, overlay, component)
        assert any(each["apiVersion"].startswith(FOREIGN) for each in objects)
        scaled = [each["kind"] for each in objects if "scaleTargetRef" in each.get("spec", {})]
        assert scaled == ["ScaledObject" if component == "keda" else "HorizontalPodAutoscaler"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_keda_counts_for_each_core_that_a_pod_asks_for(overlay: str, tmp_path: Path) -> None:
    objects = with_component(tmp_path / overlay, overlay, "keda")
    (trigger,) = one(objects, "ScaledObject")["spec"]["triggers"]
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert trigger["metadata"]["query"].endswith(f" / {container['resources']['requests']['cpu']}")


def test_prometheus_asks_as_the_ports_are(tmp_path: Path) -> None:
    objects = with_component(tmp_path / "made", "cpu", "monitoring", "plain")
    (endpoint,) = one(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint == {"port": "metrics", "scheme": "http", "interval": "15s"}


def test_how_many_pods_there_are_is_left_to_the_autoscaler() -> None:
    """Else each `kubectl apply` would set it back."""
    assert "replicas" not in one(built(SOURCE / "base"), "Deployment")["spec"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_secret_that_changes_reaches_the_pod(overlay: str) -> None:
    """The kubelet never renews what is mounted by a subPath."""
    spec = pod(overlay)
    secrets = {each["name"] for each in spec["volumes"] if "secret" in each}
    for mount in spec["containers"][0]["volumeMounts"]:
        assert mount["name"] not in secrets or "subPath" not in mount


def with_component(folder: Path, overlay: str, *components: str) -> list[Object]:
    folder.mkdir()
    named = [f"deploy/kubernetes/components/{component}" for component in components]
    (folder / "deploy").symlink_to(SOURCE.parent)
    (folder / "kustomization.yaml").write_text(
        f"resources: [deploy/kubernetes/overlays/{overlay}]\ncomponents: [{', '.join(named)}]\n"
    )
    return built(folder)


def definitions() -> dict[tuple[str, str], Object]:
    """The schema of each version of each kind that TEST_CRDS defines."""
    if not CRDS:
        pytest.skip("no definitions of others' kinds (TEST_CRDS is not set)")
    found = {}
    for file in Path(CRDS).glob("*.yaml"):
        for each in yaml.load_all(file.read_text(), yaml.CSafeLoader):
            spec = each["spec"]
            for version in spec["versions"]:
                name = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                found[name] = strict(version["schema"]["openAPIV3Schema"])
    return found


def strict(schema: Any) -> Any:
    """Refuses fields that an API server would drop."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(each) for name, each in schema.items()}
    known = isinstance(made.get("properties"), dict) and made.get("type") == "object"
    if known and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def test_kinds_of_other_projects_fit_their_definitions(tmp_path: Path) -> None:
    known = definitions()
    objects = built(SOURCE / "kserve")
    for component in ("gateway", "monitoring", "keda"):
        objects += with_component(tmp_path / component, "cpu", component)
    foreign = [each for each in objects if each["apiVersion"].startswith(FOREIGN)]
    for each in foreign:
        schema = jsonschema.Draft202012Validator(known[each["apiVersion"], each["kind"]])
        schema.validate(each)
        each["spec"]["unheard"] = "of"
        with pytest.raises(jsonschema.ValidationError, match="unheard"):
            schema.validate(each)
    assert {each["kind"] for each in foreign} == {
        *("HTTPRoute", "GRPCRoute", "ServiceMonitor", "ScaledObject"),
        *("ServingRuntime", "InferenceService"),
    }


def test_kserve_runs_the_same_container() -> None:
    """But for what KServe itself brings: the models and TLS. It asks a pod that is ready, without
    proofs."""
    runtime = one(built(SOURCE / "kserve"), "ServingRuntime")["spec"]
    (theirs,), (ours,) = runtime["containers"], pod("cpu")["containers"]
    assert theirs["image"] == ours["image"]
    for name in ("resources", "lifecycle"):
        assert theirs[name] == ours[name]
    assert theirs["securityContext"] == pod("cpu")["securityContext"] | ours["securityContext"]
    for name in ("readinessProbe", "livenessProbe"):
        probe = dict(ours[name], httpGet={"path": ours[name]["httpGet"]["path"], "port": 8000})
        assert theirs[name] == probe
    left_out = {"models", "tls", "proofs"}
    assert theirs["volumeMounts"] == [
        each for each in ours["volumeMounts"] if each["name"] not in left_out
    ]
    assert runtime["volumes"] == [
        each for each in pod("cpu")["volumes"] if each["name"] not in left_out
    ]


def test_every_pod_is_restricted() -> None:
    """By the rules of the Pod Security Standard, and by a namespace's quotas."""
    filler = yaml.safe_load((SOURCE / "components" / "volume" / "filler.yaml").read_text())["spec"]
    allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
    for spec in (filler, *map(pod, OVERLAYS), *map(job, JOBS)):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        of_pod = spec["securityContext"]
        assert of_pod["runAsNonRoot"] and of_pod["runAsUser"] > 0
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        for volume in spec["volumes"]:
            assert len({*volume} - {"name"} & allowed) == 1, volume
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert not any("hostPort" in port for port in container.get("ports", ()))
            asked = container["resources"]
            assert {"cpu", "memory"} <= asked["requests"].keys() and "memory" in asked["limits"]


@pytest.mark.parametrize(
    ("overlay", "names"),
    [("cpu", ["compose.yaml"]), ("s3", ["compose.yaml", "compose.s3.yaml"])],
)
def test_the_pod_is_what_compose_runs(overlay: str, names: list[str]) -> None:
    server, spec = compose_server(*names), pod(overlay)
    raw = yaml.safe_load((ROOT / "compose.yaml").read_text())
    (container,) = spec["containers"]

    of_pod, context = spec["securityContext"], container["securityContext"]
    assert f"{of_pod['runAsUser']}:{of_pod['runAsGroup']}" == server["user"]
    assert context["readOnlyRootFilesystem"] is raw["x-hardened"]["read_only"]
    assert context["capabilities"]["drop"] == raw["x-hardened"]["cap_drop"]
    assert not {"command", "args"} & {*container, *server}  # both run the image's

    assert {port["containerPort"] for port in container["ports"]} == {
        port["target"] for port in raw["services"]["ports"]["ports"]
    }

    settings = one(built(SOURCE / "overlays" / overlay), "ConfigMap")["data"]
    ours = {*raw["x-exposure"], *compose_server("compose.yaml")["environment"]} - {"<<"}
    if overlay == "s3":
        ours |= {*server["environment"]}
    of_the_pod = {each["name"] for each in container["env"]}
    assert {*settings} | of_the_pod == ours - RELAY[0]
    defaults = Settings.load({}, Path("/none"))
    assert {name: settings[name] for name in names_of(DOOR)} == {
        name: defaults[name] for name in names_of(DOOR)
    }

    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    bound = {}
    for each in server["volumes"]:
        _, inside, *mode = each.split(":")
        bound[inside] = mode == ["ro"]
    temporary = {each.split(":")[0] for each in server["tmpfs"]}
    secret = {f"/run/secrets/{each}" for each in server.get("secrets", ()) if isinstance(each, str)}
    bound = {inside: how for inside, how in bound.items() if inside not in RELAY[1]}
    assert {*mounts} == {*bound} | temporary | secret | {"/dev/shm", "/run/proofs"}
    for inside, read_only in bound.items():
        assert mounts[inside].get("readOnly", False) == read_only
    volumes = {each["name"]: each for each in spec["volumes"]}
    for inside in (*temporary, "/dev/shm"):
        assert volumes[mounts[inside]["name"]]["emptyDir"]["medium"] == "Memory"

    assert container["resources"]["limits"]["memory"] == quantity(bare(server["mem_limit"]))
    shared = volumes[mounts["/dev/shm"]["name"]]["emptyDir"]["sizeLimit"]
    assert shared == quantity(bare(server["shm_size"]))

    healthcheck = server["healthcheck"]
    starts, dies = (
        container[probe]["periodSeconds"] * container[probe]["failureThreshold"]
        for probe in ("startupProbe", "livenessProbe")
    )
    assert min(starts, dies) > seconds(bare(healthcheck["start_period"]))
    assert container["readinessProbe"]["periodSeconds"] <= seconds(healthcheck["interval"])
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["timeoutSeconds"] <= seconds(healthcheck["timeout"])
    asked = [*healthcheck["test"][1:], "--proof=/run/proofs"]
    assert container["startupProbe"]["exec"]["command"] == asked

    grace = seconds(server["stop_grace_period"])
    drain = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] == grace + drain


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the command writes; the keys are of a checkout of its own."""
    target = ROOT / "build" / f".kubernetes-{tmp_path.name}"  # a neighbour of what it names
    monkeypatch.setattr(kustomization, "TARGET", target)
    monkeypatch.setattr(exposure, "KEYS", tmp_path / "api.keys")
    monkeypatch.setattr(exposure, "FOLDER", tmp_path / "tls")
    monkeypatch.setattr(admin_key, "PATH", tmp_path / "admin.key")
    monkeypatch.setattr(admin_key, "SHOWN", tmp_path)
    key_file.add(tmp_path / "api.keys", key_file.Client("ann"))
    yield target
    for folder in (target, target.with_name(f"{target.name}-tls")):
        shutil.rmtree(folder, ignore_errors=True)


REGISTRY = "registry.example/team"


def test_what_was_pushed_from_here_is_named_exactly(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = "sha256:" + "7" * 64
    pushed = f"{REGISTRY}/triton-bundle-server:{__version__}"
    known = {pushed: digest}
    monkeypatch.setattr(kustomization, "find_digest", lambda name: known.get(name, ""))
    kustomization.write(Settings.load({}, Path("/none")), REGISTRY)
    (container,) = one(built(target), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{REGISTRY}/triton-bundle-server@{digest}"
    export, engine = (
        each["image"]
        for each in one(built(target / "job"), "Job")["spec"]["template"]["spec"]["initContainers"]
        if each["name"] in ("export", "engine")
    )
    assert engine == container["image"]
    assert export == f"{REGISTRY}/triton-bundle-export:{__version__}", "it was not pushed"


def test_without_openssl_it_says_so(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kustomization, "find_digest", lambda _: "")
    with pytest.raises(UserError, match="openssl"):
        kustomization.write(Settings.load({}, tmp_path / ".env"), REGISTRY)
    assert not target.exists()


def test_a_canarys_pods_are_asked_by_the_others_alone(target: Path, tmp_path: Path) -> None:
    kustomization.write(Settings.load({}, tmp_path / ".env"), REGISTRY)
    objects = built(target)
    made = applied.make_canary(objects, 2)
    for each in made:
        kubernetes_validate.validate(each, "{}.{}".format(*NEWEST[-1]), strict=True)
    deployment, live = one(made, "Deployment")["spec"], one(objects, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["replicas"] == 2 and labels == deployment["selector"]["matchLabels"]
    assert deployment["template"]["spec"] == live["template"]["spec"]
    assert labels != one(objects, "Service")["spec"]["selector"] == live["selector"]["matchLabels"]
    before = one(objects, "NetworkPolicy")["spec"]
    own, asked = (each["spec"] for each in made if each["kind"] == "NetworkPolicy")
    assert own == before | {"podSelector": {"matchLabels": labels}}
    assert asked["podSelector"] == before["podSelector"]
    assert asked["egress"][0]["to"] == [{"podSelector": {"matchLabels": labels}}]


def test_pods_reach_the_collector_of_traces(target: Path) -> None:
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.tracing:4319", "CORES": "3"}
    kustomization.write(Settings.load(given, Path("/none")), REGISTRY)
    objects = built(target)
    (rule,) = one(objects, "NetworkPolicy")["spec"]["egress"]
    ports = {(each["port"], each["protocol"]) for each in rule["ports"]}
    assert ports == {(4319, "TCP"), (53, "UDP"), (53, "TCP")} and "to" not in rule
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "3"
    for each in objects:
        kubernetes_validate.validate(each, "{}.{}".format(*NEWEST[-1]), strict=True)


def test_proofs_of_many_pipelines_fit_into_configmaps(target: Path, tmp_path: Path) -> None:
    names = ["ensemble_python_resnet50", *(f"birds{number}_ensemble" for number in range(3))]
    given = {name: tmp_path / f"{name}-1.npz" for name in names}
    for file in given.values():
        file.write_bytes(os.urandom(proofs.MOST_BYTES))
    kustomization.write(Settings.load({}, tmp_path / ".env"), REGISTRY, given)
    objects = built(target)
    volumes = one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    (sources,) = (each["projected"]["sources"] for each in volumes if each["name"] == "proofs")
    mounted, found = {each["configMap"]["name"] for each in sources}, set[str]()
    for each in objects:
        kubernetes_validate.validate(each, "{}.{}".format(*NEWEST[-1]), strict=True)
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] in mounted:
            found |= each["binaryData"].keys()
            assert sum(map(len, each["binaryData"].values())) * 3 / 4 < 2**20
    assert found == {f"{name}.npz" for name in names}


def test_a_claim_is_made_once_and_stays_as_it_is(target: Path, tmp_path: Path) -> None:
    """Its maker may have made it larger, and no claim becomes smaller."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    stack, wanted = KubernetesStack(Settings.load({}, tmp_path / ".env")), Mock(pipelines={})
    wanted.fingerprint = "v1"
    rendered = {each["kind"] for each in stack._render(wanted)}
    assert "Deployment" in rendered and "PersistentVolumeClaim" not in rendered
    kubectl, there = Mock(), {"pod": make_pod(ready=True)}
    kubectl.run.return_value, kubectl.get = "v1", lambda kind, _: there.get(kind)
    claim.put(kubectl, "image", "v1", "", 1)
    (made,) = kubectl.apply.call_args.args[0]
    there["persistentvolumeclaim"] = made
    claim.put(kubectl, "image", "v1", "", 1)
    assert kubectl.apply.call_count == 1 and made["metadata"]["name"] == CLAIM


def test_a_pod_may_start_as_long_as_is_said(target: Path, tmp_path: Path) -> None:
    """And a minute longer: the keeper ends what takes too long, and says why."""
    for given, seconds in ({}, 360), ({"START_TIMEOUT": "611.5"}, 675):
        kustomization.write(Settings.load(given, tmp_path / ".env"), REGISTRY)
        (container,) = one(built(target), "Deployment")["spec"]["template"]["spec"]["containers"]
        probe = container["startupProbe"]
        assert probe["failureThreshold"] * probe["periodSeconds"] == seconds


@dataclass
class Folder:
    """In another place, with nothing behind it."""

    location: str
    mirrored: dict[str, list[str]]
    prefix = "archive/"

    @property
    def archive(self) -> Folder:
        return self

    def place_beside(self, what: str) -> Folder:
        return Folder(f"{self.location}-{what}", self.mirrored)

    def mirror(self, folder: Path, to: str, known: str) -> None:
        self.mirrored[f"{self.location}/{to}"] = sorted(path.name for path in folder.iterdir())

    def write(self, name: str, content: bytes) -> None:
        assert f"{self.location}/{name.removesuffix(MARK)}" in self.mirrored


@dataclass
class Elsewhere:
    folder: Folder
    host, port = "", 443

    def open(self) -> Folder:
        return self.folder

    def read_key(self) -> str:
        return "key"


def test_pods_read_a_copy_that_never_changes(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, live_here = Settings.load({}, Path("/none")), tmp_path / "live"
    there = Folder("s3://bucket/models/live", {})
    monkeypatch.setattr(place, "find", lambda settings: Elsewhere(there))
    monkeypatch.setattr(live, "REPOSITORY", live_here)
    with pytest.raises(UserError, match="nothing is live here"):
        kustomization.write(settings, REGISTRY)
    (live_here / "network").mkdir(parents=True)
    names = []
    for file, content in (("a", "1"), ("a", "1"), ("history.json", "more"), ("a", "2")):
        (live_here / file).write_text(content)
        kustomization.write(settings, REGISTRY)
        names.append(one(built(target), "ConfigMap")["data"]["REPOSITORY"])
    assert names[0] == names[1] == names[2] != names[3]
    assert {*names} == there.mirrored.keys()
    assert all(name.startswith("s3://bucket/models/live-kubernetes/") for name in names)


def test_pods_that_read_s3_are_told_which_version_is_live(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their door sees no history there."""
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    monkeypatch.setattr(live, "REPOSITORY", tmp_path / "live")
    main, other, *_ = pipelines.every()
    for pipeline, what, version in (
        (main, "serves", 3),
        (main, "published", 4),
        (other, "serves", 7),
    ):
        history.add(pipeline, what, version, "up")
    settings = Settings.load({}, Path("/none"))
    kustomization.write(settings, REGISTRY)
    assert one(built(target), "ConfigMap")["data"]["LIVE_VERSIONS"] == ""
    there = Folder("s3://bucket/models/live", {})
    monkeypatch.setattr(place, "find", lambda settings: Elsewhere(there))
    kustomization.write(settings, REGISTRY)
    told = one(built(target), "ConfigMap")["data"]["LIVE_VERSIONS"]
    assert {*told.split()} == {f"{main.ensemble}=3", f"{other.ensemble}=7"}
    values = yaml.safe_load((target / "values.yaml").read_text())
    assert values["settings"]["LIVE_VERSIONS"] == told, "Helm's too"


def test_a_job_takes_in_a_network_that_lies_on_the_claim(target: Path, tmp_path: Path) -> None:
    given = {"FROM": "build/birds.onnx", "LABELS": "build/birds.txt", "INSECURE": "1"}
    kustomization.write(Settings.load(given, tmp_path / ".env"), REGISTRY)
    objects, job = built(target), built(target / "job")
    for each in (*objects, *job):
        kubernetes_validate.validate(each, "{}.{}".format(*NEWEST[-1]), strict=True)
    spec, words = one(job, "Job")["spec"]["template"]["spec"], one(job, "ConfigMap")["data"]
    _, first = spec["initContainers"]
    assert first["command"] == ["python3", "-m", "scripts.commands.take_in"]
    assert first["image"] == f"{REGISTRY}/triton-bundle-server:{__version__}"
    assert given.items() - {("INSECURE", "1")} <= words.items() and words["OWN"] == "build/own"
    # Which one that is, the pods read from the repository.
    assert one(objects, "ConfigMap")["data"]["MAIN_PIPELINE"] == ""

    kustomization.write(Settings.load(given | {"FROM": "birds.onnx"}, tmp_path / ".env"), REGISTRY)
    assert not (target / "job").exists()


@pytest.mark.parametrize(("flavour", "insecure"), [("", ""), ("", "1"), ("gpu", "")])
def test_the_command_writes_an_overlay_with_these_settings(
    flavour: str, insecure: str, target: Path, tmp_path: Path
) -> None:
    given = {"MEMORY": "5g", "GPU_MEMORY": "20g", "MAX_BODY_MB": "7", "ARCH": "resnet18"}
    given |= {"FLAVOUR": flavour, "INSECURE": insecure, "KEEP_MB": "5000"}
    kustomization.write(Settings.load(given, tmp_path / ".env"), REGISTRY)
    objects, job = built(target), built(target / "job")
    modes = {path.stat().st_mode & 0o077 for path in (target / "secrets").iterdir()}
    assert one(objects, "NetworkPolicy")["spec"]["egress"] == []
    for each in (*objects, *job):
        kubernetes_validate.validate(each, "{}.{}".format(*NEWEST[-1]), strict=True)
    assert one(job, "ConfigMap")["data"]["ARCH"] == "resnet18"
    steps = one(job, "Job")["spec"]["template"]["spec"]["initContainers"]
    assert {each["image"].rpartition("/")[0] for each in steps} == {REGISTRY}
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    volumes, (container,) = {each["name"]: each for each in pod["volumes"]}, pod["containers"]
    assert volumes["state"]["emptyDir"]["sizeLimit"] == "5200Mi"
    server = "triton-bundle-server-gpu" if flavour else "triton-bundle-server"
    assert container["image"] == f"{REGISTRY}/{server}:{__version__}"
    limits, settings = container["resources"]["limits"], one(objects, "ConfigMap")["data"]
    if flavour:
        assert limits == {"memory": "20Gi", "nvidia.com/gpu": "1"}
        assert one(job, "ConfigMap")["data"]["FLAVOUR"] == "gpu"
    else:
        assert limits["memory"] == "5Gi"
    assert (settings["MAX_BODY_MB"], settings["BIND"]) == ("7", "0.0.0.0")
    schemes = {
        container[probe]["httpGet"]["scheme"] for probe in ("readinessProbe", "livenessProbe")
    }
    assert schemes == {"HTTP" if insecure else "HTTPS"}
    secrets = {
        each["metadata"]["name"]: {*each.get("data", ())}
        for each in objects
        if each["kind"] == "Secret"
    }
    assert secrets == {
        "triton-bundle-key": {"admin.key", "api.keys"},
        "triton-bundle-tls": set() if insecure else {"cert.pem", "key.pem"},
    }
    assert modes == {0}
