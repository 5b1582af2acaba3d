"""Every setting, defined once. A value comes from the command line or the environment, else from
.env, else from the default here.

    settings = Settings.load()
    settings.http_port                the value: an int
    Settings.http_port.name         the setting itself

.env.example and docs/settings.md are generated from this file: python -m scripts.settings.documents
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from bundle_door import settings as door
from scripts.base import parts
from scripts.base.errors import UserError
from scripts.base.paths import CPU_TORCH, DOTENV, EXTENSIONS, KINDS
from scripts.settings import dotenv_file
from scripts.settings.choices import PRECISIONS, parse_arch
from scripts.settings.setting import (
    Part,
    Setting,
    choice,
    count_or_none,
    gather,
    number,
    of_class,
    path,
    path_or,
    port,
    size,
    text,
    text_or_files,
    whole,
    whole_or,
    whole_or_none,
)

VERSION, CHECK, SERVER, MACHINE = Part.VERSION, Part.CHECK, Part.SERVER, Part.MACHINE
COMMAND, DOOR = Part.COMMAND, Part.DOOR

# That extensions bring.
FLAVOURS = {each.NAME: each for each in parts.find("flavour")}

# A change of one of these changes the server or its answers.
SERVED = (VERSION, SERVER, MACHINE)


def _gpus(value: str) -> str:
    one = r"(\d+|GPU-[0-9a-f-]+)"
    if not re.fullmatch(rf"all|{one}(,{one})*", value, re.ASCII):
        raise ValueError
    return value


def _percentage(value: str) -> float:
    if not 0 < float(value) <= 100:
        raise ValueError
    return float(value)


class Group:
    """Settings documented together; the docstring is their heading."""

    remedy = "fix it here or in .env"
    values: dict[str, str]


class Served(Group):
    """What is served"""

    arch = Setting(
        "resnet50",
        parse_arch,
        "an architecture",
        """An ImageNet classifier of torchvision: resnet50, mobilenet_v2, efficientnet_b0,
        convnext_tiny, … Or drawn: a small network that comes with the project and knows drawings
        of eight things.""",
        VERSION,
    )
    weights = path_or(
        ("default", "random"),
        """default: torchvision's own, downloaded and verified. A .pth, .ckpt or .safetensors file.
        Or random: untrained, for a trial run; every label then says so.""",
        VERSION,
    )
    precision = choice(
        PRECISIONS,
        """fp32, bf16 (faster if the CPU supports it), or auto: bf16 if it keeps 99% of the labels.
        int8 is the fastest and needs CALIBRATION.""",
        VERSION,
    )
    calibration = path(
        """A folder with a few hundred photos like those that will be sent: int8 is calibrated with
        most of them and checked with the rest.""",
        CHECK,
    )
    accuracy = Setting(
        "99",
        _percentage,
        "a percentage",
        """Of the pictures that int8 is checked with, the percentage that must keep the label of
        fp32. As many layers as that takes are not computed in int8.""",
        CHECK,
    )
    decode = choice(
        ("reduced", "full"),
        """reduced: large JPEGs are decoded at 1/2, 1/4 or 1/8 of their size, still larger than the
        network needs. Or full.""",
        VERSION,
    )
    max_megapixels = number(
        "50", "Pictures with more megapixels are refused before they are decoded.", VERSION
    )
    steps = choice(
        ("auto", "1", "3"),
        """3: pictures are decoded, computed and turned into probabilities by three models. 1: by
        one, which is faster on a CPU; see docs/measuring/tuning.md. auto: 1 on a CPU, 3 on a
        GPU.""",
        VERSION,
    )
    samples = path(
        """A folder with your photos. On some of them every step is compared with PyTorch; on up to
        200 of them, bf16 is compared with fp32. Empty: noise, and drawn scenes.""",
        CHECK,
    )
    from_ = text_or_files(
        "",
        """Your own network as the main pipeline, instead of ARCH and WEIGHTS: an .onnx file, or
        what else `make add-model` takes. With LABELS, also ARCH with a .pth file as WEIGHTS.""",
        COMMAND,
    )
    labels = text_or_files("", "The file with your network's labels, one per line.", COMMAND)
    name = text(
        "",
        "What the pipeline of your network is called, here and in the API. Empty: as its file.",
        COMMAND,
    )
    pictures = text_or_files(
        "", "How your network wants pictures: keys of a recipe, or a file that says them.", COMMAND
    )
    main = text(
        "",
        """The main pipeline: `make up` starts the server with it, and commands mean it without
        MODEL. Empty: as the last `make up` had it, at first ImageNet's resnet50.""",
        COMMAND,
    )
    own = text_or_files(
        "own",
        "The folder for pipelines that `make add-model` adds; it can be a git repository of yours.",
        COMMAND,
    )


class Where(Group):
    """Where and how"""

    flavour = choice(
        ("", "gpu", "cpu", "local", *FLAVOURS),
        f"""gpu: containers, TensorRT. cpu: containers, OpenVINO. local: plain processes, no Docker.
        {" ".join(each.ABOUT for each in FLAVOURS.values())} Empty: gpu if there is an NVIDIA
        driver, else cpu if Docker answers, else local.""",
        MACHINE,
    )
    bind = text(
        "127.0.0.1",
        """The address to open the ports on. If other machines can reach it, the door requires TLS
        and an API key (`make keys`).""",
        SERVER,
    )
    http_port = port(8000, "The port of the HTTP API.", SERVER)
    grpc_port = port(8001, "The port of the gRPC API.", SERVER)
    metrics_port = port(8002, "The port of the Prometheus metrics.", SERVER)
    cores = whole_or(
        lambda: len(os.sched_getaffinity(0)), "How many CPU cores to use. Empty: all.", MACHINE
    )
    preprocess_instances = whole_or_none(
        "Processes that decode pictures. Empty: derived from CORES.", MACHINE
    )
    preprocess_threads = whole_or_none(
        "Threads of each process that decodes pictures. Empty: derived from CORES.", MACHINE
    )
    network_instances = whole_or_none(
        """Processes that run the network. Empty: derived from CORES. On a GPU: copies of the
        network per GPU, of which `make tune` tries one to four; empty: two.""",
        MACHINE,
    )
    network_threads = whole_or_none(
        "Threads of each process that runs the network. Empty: derived from CORES.", MACHINE
    )
    memory = size(
        "",
        """The memory limit of the server's container. Empty: derived from CORES and MAX_MEGAPIXELS
        (5.6g with two cores).""",
        SERVER,
    )
    replicas = count_or_none(
        """How many servers, where a flavour has several. Empty: as many as there are, or two. Only
        `make scale` on a cluster takes 0.""",
        COMMAND,
    )
    max_replicas = whole_or_none(
        """How many servers `REPLICAS` may ask for, where nodes come when they are needed. Empty: as
        many as the nodes of the swarm or cluster have room for, or 100 where you may not see
        them.""",
        COMMAND,
    )
    compose_override = text_or_files(
        "", "A Compose file of your own, applied after the project's.", MACHINE
    )
    tls_cert = path(
        """A certificate, with its chain, for TLS. Empty: `make up` creates one if other machines
        can reach the ports.""",
        SERVER,
        DOOR,
    )
    tls_key = path("The private key of TLS_CERT.", SERVER)
    insecure = choice(
        ("", "1"),
        "1: neither TLS nor API keys, whatever BIND is: anyone who can reach the ports can ask.",
        SERVER,
        DOOR,
    )
    allowed_hosts = Setting(
        "",
        door.read_hosts,
        "names of hosts, without scheme and port: a.example,b.example",
        "Host names that requests may use, besides addresses and names without a dot: a,b",
        SERVER,
        DOOR,
    )
    cache_mb = whole_or_none(
        """Megabytes in which each process that decodes pictures or runs a network keeps its latest
        answers, for inputs that come again. Empty: none. See docs/operating.md.""",
        SERVER,
    )
    start_timeout = number("120", "Seconds within which a started server must answer.", COMMAND)


class Switching(Group):
    """Switching versions (make rollout, make rollback)"""

    watch_seconds = number("3", "How many seconds each version is measured.", COMMAND)
    max_p99_ratio = number(
        "2",
        """A candidate is rejected if its p99 is above this many times the live version's plus
        20 ms.""",
        COMMAND,
    )
    min_agreement = Setting(
        "20",
        _percentage,
        "a percentage",
        """The percentage of pictures on which a candidate must give the same label as the live
        version.""",
        COMMAND,
    )
    max_drop = number(
        "1",
        """On labelled data (EVAL), by how many points a candidate may be right more seldom than the
        live version; it is rejected if it is certainly worse by more. See
        docs/measuring/eval.md.""",
        COMMAND,
    )


class Keeping(Group):
    """What is kept"""

    keep_versions = whole(
        10,
        """How many of the newest versions of a pipeline are kept; the live one and the one before
        it stay in any case. `make publish`, `make up` and `make prune` remove older ones.""",
        COMMAND,
    )


class Gpu(Group):
    """On a GPU"""

    triton_tag = text(
        "26.07", "The release of NVIDIA's images: pytorch, tritonserver and the SDK.", MACHINE
    )
    gpus = Setting(
        "all",
        _gpus,
        "all, or numbers as in 0,1, or UUIDs as nvidia-smi -L shows them",
        "The GPUs to serve on, by nvidia-smi's numbers or UUIDs. They must be of the same model.",
        SERVER,
    )
    opt_batch = whole(
        32, "The batch size that the plan is optimised for; it accepts 1 to 256.", VERSION
    )
    preprocess = choice(
        ("python", "dali"),
        """python: pictures are decoded on the CPU. dali: on the GPU, faster and less exact; see
        docs/gpu.md.""",
        VERSION,
    )
    postprocess = choice(
        ("cpu", "gpu"),
        """cpu: the network's scores are copied to the host and turned into probabilities there.
        gpu: this happens on the GPU; see docs/gpu.md for the cost.""",
        MACHINE,
    )
    gpu_memory = size("16g", "The host memory limit of the server's container.", MACHINE)


class Building(Group):
    """For building"""

    registry = text(
        "",
        """Where released images are, such as registry.example/team: those of this version are taken
        from there. Empty, or where there are none: they are built.""",
        COMMAND,
    )
    ca_bundle = text_or_files(
        "", "Certificates that image builds and downloads trust, for a company proxy.", COMMAND
    )
    torch_index = text(
        CPU_TORCH,
        "Where CPU builds of PyTorch come from. If it does not answer, pip's own index is used.",
        COMMAND,
    )
    python = text(
        "",
        """The interpreter for .venv. Empty: the first suitable one of python3, python3.12,
        python3.11, python3.13, python3.14.""",
        COMMAND,
    )


def _of_the_door() -> type[Group]:
    found = {each.name.lower(): Setting(*each[1:], SERVER, DOOR) for each in door.SETTINGS}
    return type("Door", (Group,), {"__doc__": "The door", **found})


GROUPS: tuple[type[Group], ...] = (
    Served,
    gather(Group, "Of single kinds of pipelines", *parts.find_in([KINDS], "settings")),
    Where,
    _of_the_door(),
    Switching,
    Keeping,
    Gpu,
    Building,
    *(gather(Group, each.__doc__, each) for each in parts.find_in([EXTENSIONS], "settings")),
)
ALL: dict[str, Setting[Any]] = {each.name: each for each in chain(*map(of_class, GROUPS))}


def _add_own() -> None:
    """Those of the user's own kinds of pipelines, which are in no document of the project's."""
    for module in parts.find_in([parts.find_own_kinds()], "settings"):
        for each in of_class(gather(Group, None, module)):
            if each.name in ALL:
                raise UserError(
                    f"{module.__file__}: {each.name} is a setting already", "give it another name"
                )
            ALL[each.name] = each


_add_own()
PORTS = tuple(each.name for each in (Where.http_port, Where.grpc_port, Where.metrics_port))
DEFAULTS = {name: setting.default for name, setting in ALL.items()}


def names(*parts: Part) -> tuple[str, ...]:
    """The settings that affect any of these, in the order of their definition."""
    return tuple(name for name, each in ALL.items() if any(part in each.parts for part in parts))


class Settings(Served, Where, Switching, Keeping, Gpu, Building):
    def __init__(self, values: dict[str, str], given: Collection[str] = ()) -> None:
        self.values = values
        self.given = frozenset(given)  # set by the user, not defaults

    def __getitem__(self, name: str) -> str:
        """The text of a setting, to compare or pass on."""
        return self.values[name]

    def value(self, name: str) -> Any:
        return ALL[name].read(self[name])

    def photos(self, name: str) -> Path | None:
        """The folder of photos that a setting names, if any."""
        folder: Path | None = self.value(name)
        if folder and not folder.is_dir():
            raise UserError(
                f"{name}={folder} is not a folder", "name a folder that contains photos"
            )
        return folder

    @property
    def ports(self) -> dict[str, int]:
        """The server's ports."""
        return {name: self.value(name) for name in PORTS}

    def replace_with(self, **values: str) -> Settings:
        """A copy, as if the user had set these."""
        return Settings(self.values | values, self.given | values.keys())

    def fill_from(self, earlier: Mapping[str, str]) -> Settings:
        """What the user sets now; for the rest, what was set earlier."""
        given_now = {name: self.values[name] for name in self.given}
        return Settings({**self.values, **earlier, **given_now}, self.given)

    @classmethod
    def load(
        cls,
        environment: Mapping[str, str] | None = None,
        dotenv: Path = DOTENV,
        not_in_dotenv: Collection[str] = (),
    ) -> Settings:
        """From the environment and .env; each value is checked."""
        typed = os.environ if environment is None else environment
        written = dotenv_file.read(dotenv)
        found = {name: written[name] for name in written.keys() - {*not_in_dotenv}}
        found |= {name: typed[name] for name in ALL if name in typed}
        given = {name: found[name].strip() for name in ALL if found.get(name, "").strip()}
        settings = cls(DEFAULTS | given, given)
        for name, setting in ALL.items():
            setting.read(settings[name])
        _refuse_a_shared_port(settings.ports)
        return settings


def _refuse_a_shared_port(ports: Mapping[str, int]) -> None:
    if len(set(ports.values())) < len(ports):
        listed = ", ".join(f"{name}={port}" for name, port in ports.items())
        raise UserError(f"two ports are the same ({listed})", "give each its own port")
