"""Every setting, once: its name, its default, and what it is for.

A value comes from the command line or the environment, else from .env, else from here. The help
text of .env.example is held against this table by a test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dotenv import dotenv_values

from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.bootstrap import CPU_TORCH
from scripts.settings.architectures import require_known
from scripts.settings.precision import PRECISIONS

DEFAULTS = {
    # what is served
    "ARCH": "resnet50",
    "WEIGHTS": "default",
    "PRECISION": "auto",
    "CALIBRATION": "",
    "DECODE": "reduced",
    "MAX_MEGAPIXELS": "50",
    "SAMPLES": "",
    "SENTIMENT": "",
    "PLACES": "",
    "CASCADE": "default",
    "EMBEDDINGS": "default",
    "OWN": "own",
    # where and how
    "FLAVOUR": "",
    "BIND": "127.0.0.1",
    "HTTP_PORT": "8000",
    "GRPC_PORT": "8001",
    "METRICS_PORT": "8002",
    "EMBEDDINGS_PORT": "8010",
    "CORES": "",
    "PREPROCESS_INSTANCES": "",
    "PREPROCESS_THREADS": "",
    "NETWORK_INSTANCES": "",
    "NETWORK_THREADS": "",
    "MEMORY": "4g",
    "COMPOSE_OVERRIDE": "",
    "START_TIMEOUT": "120",
    # while a version is switched
    "WATCH_SECONDS": "3",
    "MOST_P99": "2",
    "MIN_AGREEMENT": "20",
    # the repository on S3
    "REPOSITORY": "",
    "S3_SERVER_CREDENTIALS": "",
    "S3_PORT": "9000",
    # on a GPU
    "TRITON_TAG": "26.07",
    "GPUS": "all",
    "OPT_BATCH": "32",
    "PREPROCESS": "python",
    "POSTPROCESS": "cpu",
    "GPU_MEMORY": "16g",
    # for building
    "CA_BUNDLE": "",
    "TORCH_INDEX": CPU_TORCH,
    "PYTHON": "",
}

CHOICES = {
    "PRECISION": PRECISIONS,
    "DECODE": ("reduced", "full"),
    "FLAVOUR": ("", "gpu", "cpu", "local"),
    "PREPROCESS": ("python", "dali"),
    "POSTPROCESS": ("cpu", "gpu"),
}
# A change of these is no change of what the server answers.
NOT_SERVED = {
    *("START_TIMEOUT", "WATCH_SECONDS", "MOST_P99", "MIN_AGREEMENT"),
    *("CA_BUNDLE", "TORCH_INDEX", "PYTHON", "SAMPLES", "CALIBRATION", "OWN"),
    *("SENTIMENT", "PLACES", "CASCADE", "EMBEDDINGS", "EMBEDDINGS_PORT"),
}
NUMBERS = ("MAX_MEGAPIXELS", "WATCH_SECONDS", "MOST_P99", "MIN_AGREEMENT")
PORTS = ("HTTP_PORT", "GRPC_PORT", "METRICS_PORT")
WHOLE_NUMBERS = (
    *PORTS,
    "EMBEDDINGS_PORT",
    "CORES",
    "PREPROCESS_INSTANCES",
    "PREPROCESS_THREADS",
    "NETWORK_INSTANCES",
    "NETWORK_THREADS",
    "START_TIMEOUT",
    "OPT_BATCH",
    "S3_PORT",
)


@dataclass(frozen=True)
class Settings:
    values: dict[str, str]
    given: frozenset[str] = field(default_factory=frozenset)  # said by the user, not defaults

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def number(self, name: str) -> int | None:
        return int(self.values[name]) if self.values[name] else None

    @property
    def cores(self) -> int:
        return self.number("CORES") or len(os.sched_getaffinity(0))

    @property
    def weights(self) -> str:
        return self.weights_of("WEIGHTS")

    def weights_of(self, name: str) -> str:
        """'default', 'random', or an absolute path."""
        value = self.values[name]
        return value if value in ("default", "random") else str(Path(value).expanduser().resolve())

    def ports(self, *names: str) -> dict[str, int]:
        """Those that these settings name; without a name, those of the server."""
        return {name: int(self[name]) for name in names or PORTS}

    def folder(self, name: str) -> Path | None:
        """The folder of photos that a setting names, if it names one."""
        path = Path(self[name]).expanduser().resolve()
        if self[name] and not path.is_dir():
            raise UserError(f"{name}={path} is no folder", "name a folder with photos in it")
        return path if self[name] else None

    def replaced(self, **values: str) -> Settings:
        """As if the user had said so."""
        return Settings(self.values | values, self.given | values.keys())

    def over(self, earlier: dict[str, str]) -> Settings:
        """What the user says now, and for the rest what was said earlier."""
        said_now = {name: self.values[name] for name in self.given}
        return Settings(self.values | earlier | said_now, self.given)


def load(
    environment: Mapping[str, str] | None = None,
    dotenv: Path = ROOT / ".env",
    not_in_dotenv: Collection[str] = (),
) -> Settings:
    written = {name: value or "" for name, value in dotenv_values(dotenv).items()}
    typed = dict(os.environ if environment is None else environment)
    said = {name: text for name, text in written.items() if name not in not_in_dotenv} | typed
    given = {name: said[name].strip() for name in DEFAULTS if said.get(name, "").strip()}
    values = DEFAULTS | given
    for name, choices in CHOICES.items():
        if values[name] not in choices:
            offered = ", ".join(choice or "(empty)" for choice in choices)
            raise UserError(f"{name}={values[name]} is not known", f"choose one of: {offered}")
    require_known(values["ARCH"])
    if not re.fullmatch(r"all|\d+(,\d+)*", values["GPUS"]):
        raise UserError(f"GPUS={values['GPUS']} is not known", "say all, or numbers: GPUS=0,1")
    for name in WHOLE_NUMBERS:
        if values[name] and not (values[name].isdecimal() and int(values[name]) > 0):
            raise UserError(f"{name}={values[name]} is no whole number above 0", "mend it, or .env")
    for name in PORTS:
        if int(values[name]) > 65535:
            raise UserError(f"{name}={values[name]} is no port", "ports end at 65535")
    if len({int(values[name]) for name in PORTS}) < len(PORTS):
        said_twice = ", ".join(f"{name}={values[name]}" for name in PORTS)
        raise UserError(f"two ports are the same ({said_twice})", "give each its own")
    for name in NUMBERS:
        try:
            if not float(values[name]) > 0:
                raise ValueError
        except ValueError:
            raise UserError(
                f"{name}={values[name]} is no number above 0", "mend it, or .env"
            ) from None
    return Settings(values, frozenset(given))
