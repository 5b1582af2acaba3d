"""What Kubernetes needs to serve with the settings of this checkout: an overlay over
deploy/kubernetes, with the secrets beside it."""

import hashlib
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from bundle_client import __version__
from bundle_door.access import certificate
from bundle_serving.process import main_pipeline
from bundle_serving.process.exposure import CERTIFICATE, PRIVATE_KEY, is_loopback
from bundle_serving.process.traces import ENDPOINT, Collector
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
# From there.
ABOVE = Path("..", "..", "deploy", "kubernetes")

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
# Beside a copy there: written anew whenever an overlay names it.
MARK = ".named"
PROOFS = "proofs"
# Of base/deployment.yaml and the GPU's overlay.
USUAL_CORES = 2
UNITS = {"k": "Ki", "m": "Mi", "g": "Gi"}
# Of the keeper, whatever START_TIMEOUT is; and how often the probe looks, which waits longer.
LEAST_START_S, PROBE_S = 300, 5
# A pod whose volume `state` has more than its limit is evicted.
BESIDE_KEPT_MB = 200


def write(
    settings: Settings, registry: str, proofs: Mapping[str, Path] = MappingProxyType({})
) -> Path:
    """Returns the folder for `kubectl apply --kustomize`. `proofs`: what each pod must answer
    before it is asked, by ensemble; it loads them all."""
    # Others reach a pod, whatever BIND says of this machine.
    reached = settings.replace_with(BIND="0.0.0.0")
    elsewhere = _find_place(settings)
    exposure.require_keys(reached)
    has_tls = bool(exposure.exposure_of(reached).certificate)
    with files.whole_folder(TARGET) as target:
        secrets = target / "secrets"
        secrets.mkdir(mode=0o700)
        # Without TLS it has no file, but the pod mounts it.
        tls = {"tls": _certificate(reached) if has_tls else {}}
        contents = read_keys(settings, elsewhere) | tls
        generators = [_secret(name, secrets, texts) for name, texts in contents.items()]
        environment = _environment(reached, elsewhere, proofs)
        image = _image(registry, "server-gpu" if settings.flavour == "gpu" else "server")
        proved = _add_proofs(target, proofs)
        written = _overlay(reached, elsewhere, environment, proved) | {
            "components": [] if has_tls else [str(ABOVE / "components" / "plain")],
            "images": [image],
            "configMapGenerator": [_merge(f"{SERVICE}-settings", environment), *proved],
            "secretGenerator": generators,
        }
        _write_yaml(target / "kustomization.yaml", _kustomization(written))
        # The secrets by themselves, for Helm, whose chart has none.
        alone = [
            each | {"files": [name.partition("/")[2] for name in each.get("files", ())]}
            for each in generators
        ]
        there = _kustomization({"secretGenerator": alone})
        _write_yaml(secrets / "kustomization.yaml", there, 0o600)
        values = _make_values(reached, environment, image, elsewhere, has_tls)
        _write_yaml(target / "values.yaml", values)
        if not elsewhere and has_job(settings):
            (target / "job").mkdir()
            _write_yaml(target / "job" / "kustomization.yaml", _job(settings, registry))
    return TARGET


def _kustomization(parts: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **parts}


def _write_yaml(path: Path, content: dict[str, Any], mode: int = 0o644) -> None:
    files.write(path, yaml.safe_dump(content, sort_keys=False), mode)


def _add_proofs(target: Path, proofs: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Each in a ConfigMap of its own: none may be larger than 1 MiB."""
    made = []
    for number, (ensemble, file) in enumerate(sorted(proofs.items())):
        (target / PROOFS).mkdir(exist_ok=True)
        shutil.copyfile(file, target / (name := f"{PROOFS}/{ensemble}.npz"))
        made.append({"name": f"{SERVICE}-proofs-{number}", "files": [name]})
    return made


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
    kind, images = "cpu", ["export", "layout", "server"]
    built_with = {name: settings[name] for name in BUILT_WITH}
    patches = []
    if settings.flavour == "gpu":
        kind, images = "gpu", ["export-gpu", "layout", "server-gpu"]
        built_with["POSTPROCESS"] = settings["POSTPROCESS"]
    elif settings.from_:
        # In place of export and engine, the server's image takes the network in and lays it out.
        images.remove("export")
        built_with |= {"ARCH": "", "WEIGHTS": "", "OWN": f"{CLAIM}own", "REPOSITORY": ""}
        built_with |= {name: settings[name] for name in ("FROM", "LABELS", "NAME", "PICTURES")}
        steps = "/spec/template/spec/initContainers"
        take_in = ["python3", "-m", "scripts.commands.take_in"]
        patch = [
            {"op": "remove", "path": f"{steps}/1"},
            {"op": "replace", "path": f"{steps}/1/command", "value": take_in},
        ]
        patches = [{"target": {"kind": "Job"}, "patch": yaml.safe_dump(patch, sort_keys=False)}]
    return _kustomization(
        {
            "resources": [str(".." / ABOVE / "jobs" / kind)],
            "images": [_image(registry, service) for service in images],
            "configMapGenerator": [_merge(f"{SERVICE}-build", built_with)],
            "patches": patches,
        }
    )


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


def _merge(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    literals = [f"{name}={value}" for name, value in environment.items()]
    return {"name": name, "behavior": "merge", "literals": literals}


def _environment(
    settings: Settings, elsewhere: Place | None, proofs: Mapping[str, Path]
) -> dict[str, str]:
    others = ("CACHE_MB", "START_TIMEOUT", "BIND")
    environment = {name: settings[name] for name in (*names(DOOR), *others)}
    # On a volume that a job fills it is noted in the repository.
    known = elsewhere or settings.flavour == FLAVOUR
    main = pipelines.main().ensemble
    environment[main_pipeline.VARIABLE] = main if known else ""
    if elsewhere:
        environment["REPOSITORY"] = _place_copy(elsewhere)
        if role := own.s3_role.value_in(settings):
            environment |= {"AWS_ROLE_ARN": role, "AWS_REGION": _require_region()}
    # On a volume they are noted in the repository.
    told = find_numbers(proofs) or (find_live() if elsewhere else {})
    extra = " ".join(sorted(proofs.keys() - {main}))
    return environment | {"EXTRA_PIPELINES": extra, "LIVE_VERSIONS": list_versions(told)}


def _overlay(
    settings: Settings,
    elsewhere: Place | None,
    environment: Mapping[str, str],
    proved: list[dict[str, Any]],
) -> dict[str, Any]:
    on_gpu, limit = settings.flavour == "gpu", requests(settings)["memory"]
    shared = quantity(memory.shm_size(settings))
    kept = f"{int(settings['KEEP_MB']) + BESIDE_KEPT_MB}Mi"
    looks = math.ceil((max(LEAST_START_S, settings.start_timeout) + 60) / PROBE_S)
    patches = [
        *_reaching(environment.get(ENDPOINT, ""), with_dns=elsewhere is not None),
        _patch("Deployment", f"{CONTAINER}/resources/requests/memory", limit),
        _patch("Deployment", f"{CONTAINER}/resources/limits/memory", limit),
        _patch("Deployment", f"{CONTAINER}/startupProbe/failureThreshold", looks),
        _patch("Deployment", "/spec/template/spec/volumes/2/emptyDir/sizeLimit", shared),
        _patch("Deployment", "/spec/template/spec/volumes/6/emptyDir/sizeLimit", kept),
    ]
    if settings.cores and not on_gpu:
        cores = str(settings.cores)
        patches.append(_patch("Deployment", f"{CONTAINER}/resources/requests/cpu", cores))
    if proved:
        sources = [{"configMap": {"name": each["name"]}} for each in proved]
        mounted = {"name": PROOFS, "projected": {"sources": sources}}
        patches.append(_patch("Deployment", "/spec/template/spec/volumes/5", mounted))
    if elsewhere:
        patches.append(_patch("NetworkPolicy", "/spec/egress/1/ports/0/port", elsewhere.port))
    on_s3 = "s3-role" if own.s3_role.value_in(settings) else "s3"
    overlay = "gpu" if on_gpu else on_s3 if elsewhere else "cpu"
    return {"resources": [str(ABOVE / "overlays" / overlay)], "patches": patches}


def _make_values(
    settings: Settings,
    environment: dict[str, str],
    image: dict[str, str],
    elsewhere: Place | None,
    has_tls: bool,
) -> dict[str, Any]:
    """The same for the Helm chart; a test compares what comes of them."""
    on_gpu, asked = settings.flavour == "gpu", requests(settings)
    gpu = {"nvidia.com/gpu": "1"} if on_gpu else {}
    exact = {"digest": image["digest"]} if "digest" in image else {"tag": image["newTag"]}
    collector = environment.get(ENDPOINT, "")
    return {
        "image": {"repository": image["newName"], **exact},
        "resources": {"requests": asked, "limits": {"memory": asked["memory"], **gpu}},
        "sharedMemory": quantity(memory.shm_size(settings)),
        "gpu": on_gpu,
        "settings": environment,
        "tls": {"enabled": has_tls},
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
        yield _patch("NetworkPolicy", "/spec/egress/-", {"ports": ports}, "add")


def _patch(kind: str, path: str, value: object, how: str = "replace") -> dict[str, Any]:
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
        hosts = [SERVICE, *certificate.list_names(settings.bind, settings.allowed_hosts)]
        try:
            certificate.ensure(folder, hosts)
        except certificate.NoCertificate as fault:
            raise UserError.from_fault(fault) from None
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
    copies.mirror(live.REPOSITORY, to=name, known=remote.archive.prefix)
    copies.write(name + MARK, b"")
    return f"{copies.location}/{name}"


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


def _find_place(settings: Settings) -> Place | None:
    """Which pods reach."""
    elsewhere = place.find(settings)
    if elsewhere and settings.flavour == "gpu":
        raise UserError("pods with a GPU read a volume, not S3", "leave REPOSITORY empty")
    if elsewhere and is_loopback(elsewhere.host):
        raise UserError(
            f"pods cannot reach {elsewhere.endpoint}, which is this machine itself",
            "set REPOSITORY to an address that the cluster reaches",
        )
    return elsewhere
