"""What Kubernetes needs to serve with the settings of this checkout: an overlay over
deploy/kubernetes, with the secrets beside it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from bundle_client import __version__
from bundle_door import prepare
from bundle_door.access import certificate
from bundle_serving.process import main_pipeline
from bundle_serving.process.exposure import CERTIFICATE, PRIVATE_KEY, is_loopback
from bundle_serving.process.traces import ENDPOINT, Collector
from extensions.kubernetes import pod_copies
from extensions.kubernetes import settings as own
from extensions.kubernetes.pods import SERVICE
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.repository import history, live, place
from scripts.repository.place import Place
from scripts.rollout.proofs import find_numbers, list_versions
from scripts.settings.settings import DOOR, Settings, names
from scripts.stacks import admin_key, certificates, exposure, memory
from scripts.stacks.images import find_digest

SOURCE = ROOT / "deploy" / "kubernetes"
TARGET = ROOT / "build" / "kubernetes"

FLAVOUR = "kubernetes"
CONTAINER = "/spec/template/spec/containers/0"
# What the steps of compose.yaml take from the environment.
BUILT_WITH = (
    *("ARCH", "WEIGHTS", "PRECISION", "DECODE", "MAX_MEGAPIXELS", "STEPS", "PREPROCESS"),
    *("OPT_BATCH", "CORES", "PREPROCESS_INSTANCES", "PREPROCESS_THREADS"),
    *("NETWORK_INSTANCES", "NETWORK_THREADS"),
)
# Where a job sees the claim.
CLAIM = "build/"
# Beside the live repository on S3.
FOR_PODS = "kubernetes"
PROOFS = "proofs"
# Of base/deployment.yaml and the GPU's overlay.
USUAL_CORES = 2
NOTHING: Mapping[str, Path] = MappingProxyType({})
UNITS = {"k": "Ki", "m": "Mi", "g": "Gi"}


def write(settings: Settings, registry: str, proofs: Mapping[str, Path] = NOTHING) -> Path:
    """Returns the folder for `kubectl apply --kustomize`. `proofs`: what each pod must answer
    before it is asked, by ensemble; it loads them all."""
    on_gpu = settings.flavour == "gpu"
    # Others reach a pod, whatever BIND says of this machine.
    reached = settings.replace_with(BIND="0.0.0.0")
    elsewhere = _require_reachable(place.find(settings))
    if on_gpu and elsewhere:
        raise UserError("pods with a GPU read a volume, not S3", "leave REPOSITORY empty")
    exposure.require_keys(reached)
    shown = exposure.exposure_of(reached)
    with files.whole_folder(TARGET) as target:
        secrets = target / "secrets"
        secrets.mkdir(mode=0o700)
        contents = read_keys(settings, elsewhere)
        generators = [_secret("key", secrets, contents["key"])]
        # Without TLS it has no file, but the pod mounts it.
        generators.append(
            _secret("tls", secrets, _certificate(reached) if shown.certificate else {})
        )
        if "s3" in contents:
            generators.append(_secret("s3", secrets, contents["s3"]))
        written = _overlay(reached, registry, elsewhere, generators, plain=not shown.certificate)
        _add_proofs(written, target, proofs)
        # On a volume they are noted in the repository.
        told = find_numbers(proofs) or (find_live() if elsewhere else {})
        written["configMapGenerator"][0]["literals"].append(f"LIVE_VERSIONS={list_versions(told)}")
        files.write(target / "kustomization.yaml", yaml.safe_dump(written, sort_keys=False))
        # The secrets by themselves, for Helm, whose chart has none.
        alone = {name: written[name] for name in ("apiVersion", "kind")}
        alone["secretGenerator"] = [
            each | {"files": [name.partition("/")[2] for name in each.get("files", ())]}
            for each in generators
        ]
        text = yaml.safe_dump(alone, sort_keys=False)
        files.write(secrets / "kustomization.yaml", text, 0o600)
        values = _make_values(reached, written, elsewhere)
        files.write(target / "values.yaml", yaml.safe_dump(values, sort_keys=False))
        if not elsewhere and has_job(settings):
            (target / "job").mkdir()
            job = yaml.safe_dump(_job(settings, registry), sort_keys=False)
            files.write(target / "job" / "kustomization.yaml", job)
    return TARGET


def _add_proofs(written: dict[str, Any], target: Path, proofs: Mapping[str, Path]) -> None:
    for ensemble, file in proofs.items():
        (target / PROOFS).mkdir(exist_ok=True)
        shutil.copyfile(file, target / PROOFS / f"{ensemble}.npz")
    settings = written["configMapGenerator"][0]["literals"]
    settings.append(
        f"EXTRA_PIPELINES={' '.join(sorted(proofs.keys() - {pipelines.main().ensemble}))}"
    )
    named = [f"{PROOFS}/{ensemble}.npz" for ensemble in sorted(proofs)]
    written["configMapGenerator"] += (
        [{"name": f"{SERVICE}-proofs", "files": named}] if named else []
    )


def find_live() -> dict[str, int]:
    """By ensemble, which version of it is live here."""
    known = {each.ensemble: history.serving(history.read(each)) for each in pipelines.every()}
    return {name: number for name, number in known.items() if number is not None}


def has_job(settings: Settings) -> bool:
    """A network of the user's own lies on the claim, or is built here."""
    if settings.flavour == "gpu" or not settings.from_:
        return pipelines.main_name() == pipelines.DEFAULT
    return settings.from_.startswith(CLAIM)


def _job(settings: Settings, registry: str) -> dict[str, Any]:
    """What fills the claim."""
    on_gpu = settings.flavour == "gpu"
    if settings.from_ and not on_gpu:
        return _job_of_own(settings, registry)
    images = ("export-gpu", "layout", "server-gpu") if on_gpu else ("export", "layout", "server")
    built_with = (*BUILT_WITH, "POSTPROCESS") if on_gpu else BUILT_WITH
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../../../deploy/kubernetes/jobs/{'gpu' if on_gpu else 'cpu'}"],
        "images": [_image(registry, service) for service in images],
        "configMapGenerator": [
            _merge_patch(f"{SERVICE}-build", {n: settings[n] for n in built_with})
        ],
    }


def _job_of_own(settings: Settings, registry: str) -> dict[str, Any]:
    """In place of export and engine, the server's image takes the network in and lays it out."""
    words = {name: settings[name] for name in ("FROM", "LABELS", "NAME", "PICTURES")}
    steps = "/spec/template/spec/initContainers"
    take_in = ["python3", "-m", "scripts.commands.take_in"]
    patch = [
        {"op": "remove", "path": f"{steps}/1"},
        {"op": "replace", "path": f"{steps}/1/command", "value": take_in},
    ]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../../deploy/kubernetes/jobs/cpu"],
        "images": [_image(registry, service) for service in ("layout", "server")],
        "configMapGenerator": [
            _merge_patch(
                f"{SERVICE}-build",
                {name: settings[name] for name in BUILT_WITH if name not in ("ARCH", "WEIGHTS")}
                | {"ARCH": "", "WEIGHTS": "", "OWN": f"{CLAIM}own", "REPOSITORY": ""}
                | words,
            )
        ],
        "patches": [{"target": {"kind": "Job"}, "patch": yaml.safe_dump(patch, sort_keys=False)}],
    }


def _image(registry: str, service: str) -> dict[str, str]:
    """As it was pushed from here, or else by its tag, which may come to name another."""
    name = f"triton-bundle-{service}"
    exact = find_digest(f"{registry}/{name}:{__version__}")
    return {
        "name": name,
        "newName": f"{registry}/{name}",
        **({"digest": exact} if exact else {"newTag": __version__}),
    }


def name_image(registry: str) -> str:
    """Of the server, as a Deployment has it."""
    image = _image(registry.rstrip("/"), "server")
    exact = f"@{image['digest']}" if "digest" in image else f":{image['newTag']}"
    return image["newName"] + exact


def _merge_patch(name: str, environment: dict[str, str]) -> dict[str, Any]:
    literals = [f"{name}={value}" for name, value in environment.items()]
    return {"name": name, "behavior": "merge", "literals": literals}


def _overlay(
    settings: Settings,
    registry: str,
    elsewhere: Place | None,
    secrets: list[dict[str, Any]],
    plain: bool,
) -> dict[str, Any]:
    on_gpu = settings.flavour == "gpu"
    role = own.s3_role.value_in(settings)
    limit = quantity(settings.gpu_memory if on_gpu else memory.limit(settings))
    environment = {name: settings[name] for name in (*names(DOOR), "CACHE_MB", "BIND")}
    # On a volume that a job fills it is noted in the repository.
    known = elsewhere or settings.flavour == FLAVOUR
    environment[main_pipeline.VARIABLE] = pipelines.main().ensemble if known else ""
    patches = [
        *_reaching(environment.get(ENDPOINT, ""), with_dns=elsewhere is not None),
        _replace_patch("Deployment", f"{CONTAINER}/resources/requests/memory", limit),
        _replace_patch("Deployment", f"{CONTAINER}/resources/limits/memory", limit),
        _replace_patch(
            "Deployment",
            "/spec/template/spec/volumes/2/emptyDir/sizeLimit",
            quantity(memory.shm_size(settings)),
        ),
    ]
    if settings.cores and not on_gpu:
        cores = str(settings.cores)
        patches.append(_replace_patch("Deployment", f"{CONTAINER}/resources/requests/cpu", cores))
    if elsewhere:
        environment["REPOSITORY"] = _place_copy(elsewhere)
        patches.append(
            _replace_patch("NetworkPolicy", "/spec/egress/1/ports/0/port", elsewhere.port)
        )
        if role:
            environment |= {"AWS_ROLE_ARN": role, "AWS_REGION": _require_region()}
    on_s3 = "s3-role" if role else "s3"
    overlay = "gpu" if on_gpu else on_s3 if elsewhere else "cpu"
    above = Path("../../deploy/kubernetes")
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(above / "overlays" / overlay)],
        "components": [str(above / "components" / "plain")] if plain else [],
        "images": [_image(registry, "server-gpu" if on_gpu else "server")],
        "configMapGenerator": [_merge_patch(f"{SERVICE}-settings", environment)],
        "secretGenerator": secrets,
        "patches": patches,
    }


def _make_values(
    settings: Settings, written: dict[str, Any], elsewhere: Place | None
) -> dict[str, Any]:
    """The same for the Helm chart; a test compares what comes of them."""
    on_gpu = settings.flavour == "gpu"
    limit = quantity(settings.gpu_memory if on_gpu else memory.limit(settings))
    literals = (each.partition("=") for each in written["configMapGenerator"][0]["literals"])
    environment = {name: value for name, _, value in literals}
    (image,) = written["images"]
    exact = {"digest": image["digest"]} if "digest" in image else {"tag": image["newTag"]}
    collector = environment.get(ENDPOINT, "")
    return {
        "image": {"repository": image["newName"], **exact},
        "resources": {
            "requests": requests(settings),
            "limits": {"memory": limit, **({"nvidia.com/gpu": "1"} if on_gpu else {})},
        },
        "sharedMemory": quantity(memory.shm_size(settings)),
        "gpu": on_gpu,
        "settings": environment,
        "tls": {"enabled": not written["components"]},
        "s3": {
            "repository": environment.get("REPOSITORY", ""),
            "port": elsewhere.port if elsewhere else 443,
            "role": environment.get("AWS_ROLE_ARN", ""),
        },
        "tracesPort": Collector.parse(collector).port if collector else 0,
    }


def requests(settings: Settings) -> dict[str, str]:
    """What each pod asks of its node."""
    on_gpu = settings.flavour == "gpu"
    cores = settings.cores if settings.cores and not on_gpu else USUAL_CORES
    limit = settings.gpu_memory if on_gpu else memory.limit(settings)
    return {"cpu": str(cores), "memory": quantity(limit)}


def _reaching(collector: str, with_dns: bool) -> Iterator[dict[str, Any]]:
    """Lets pods send their traces there, by whatever name."""
    if collector:
        ports = [{"port": Collector.parse(collector).port, "protocol": "TCP"}]
        if not with_dns:
            ports += [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
        yield _make_patch("NetworkPolicy", "add", "/spec/egress/-", {"ports": ports})


def _replace_patch(kind: str, path: str, value: object) -> dict[str, Any]:
    return _make_patch(kind, "replace", path, value)


def _make_patch(kind: str, how: str, path: str, value: object) -> dict[str, Any]:
    patch = yaml.safe_dump([{"op": how, "path": path, "value": value}], sort_keys=False)
    return {"target": {"kind": kind, "name": SERVICE}, "patch": patch}


def quantity(size: str) -> str:
    """Docker's 5.6g is Kubernetes' 5.6Gi."""
    number = size.lower().removesuffix("b")
    return number[:-1] + UNITS[unit] if (unit := number[-1]) in UNITS else number


def read_keys(settings: Settings, elsewhere: Place | None) -> dict[str, dict[str, str]]:
    """By the ends of their secrets' names. Pods read them anew: none is replaced for another."""
    keys = {"admin.key": admin_key.ensure().read_text()}
    keys |= {"api.keys": exposure.KEYS.read_text()} if exposure.KEYS.exists() else {}
    if elsewhere and not own.s3_role.value_in(settings):
        return {"key": keys, "s3": {"credentials": elsewhere.read_key()}}
    return {"key": keys}


def _certificate(settings: Settings) -> dict[str, str]:
    """The user's own, or the one that is made for this machine and for the service."""
    certificates.place(settings)
    folder = exposure.FOLDER
    # Where commands of this machine ask pods, theirs is the one that `make cluster-up` makes.
    if settings.tls_cert is None and settings.flavour != FLAVOUR:
        folder = TARGET.with_name(f"{TARGET.name}-tls")
        certificate.ensure(folder, [SERVICE, *prepare.names(settings.bind, settings.allowed_hosts)])
    return {name: (folder / name).read_text() for name in (CERTIFICATE, PRIVATE_KEY)}


def _secret(name: str, folder: Path, contents: dict[str, str]) -> dict[str, Any]:
    for file, content in contents.items():
        files.write(folder / file, content, 0o600)
    # Under one name: the door reads changed keys at once, and no pod is replaced for them.
    secret: dict[str, Any] = {
        "name": f"{SERVICE}-{name}",
        "options": {"disableNameSuffixHash": True},
    }
    return secret | ({"files": [f"secrets/{file}" for file in contents]} if contents else {})


def _place_copy(elsewhere: Place) -> str:
    """A copy of what is live that never changes: a pod that is started again reads what it read
    before, and another version is another rollout, which can be undone."""
    if not live.REPOSITORY.is_dir():
        raise UserError("nothing is live here", "bring it up there first: make up")
    remote, name = elsewhere.open(), name_contents(live.REPOSITORY)
    copies = remote.place_beside(FOR_PODS)
    return pod_copies.write(copies, live.REPOSITORY, name, known=remote.archive.prefix)


def name_contents(folder: Path) -> str:
    """Another one for other models; the door's history is no part of them."""
    found = (path for path in folder.rglob("*") if path.is_file() and _is_of_a_model(path))
    named = sorted(f"{path.relative_to(folder)}:{files.sha256(path)}\n" for path in found)
    return hashlib.sha256("".join(named).encode()).hexdigest()[:12]


def _is_of_a_model(path: Path) -> bool:
    return (
        path.name != history.SHOWN and path.suffix != ".tmp" and path.parent.name != "__pycache__"
    )


def _require_region() -> str:
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        return region
    raise UserError(
        "S3_ROLE is set, and no region, where pods ask for its keys",
        "export AWS_REGION=eu-central-1",
    )


def _require_reachable(elsewhere: Place | None) -> Place | None:
    if elsewhere and is_loopback(elsewhere.host):
        raise UserError(
            f"pods cannot reach {elsewhere.endpoint}, which is this machine itself",
            "set REPOSITORY to an address that the cluster reaches",
        )
    return elsewhere
