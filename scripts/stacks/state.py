"""Which server (or service beside it) was started last, and its addresses."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from bundle_serving.address import Address
from bundle_serving.process import main_pipeline, sockets
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.settings import settings
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import exposure

RUN = ROOT / "build" / "run"
PATH = RUN / "state.json"
# The log of the last server that failed to start.
REFUSED = RUN / "refused.log"
USUAL_START = "make up"


@dataclass(frozen=True)
class State:
    flavour: str
    fingerprint: str  # of everything served; a change means a restart
    settings: dict[str, str]
    pid: int | None = None  # of the local server
    side: str = ""  # of the local server: which of two that take over from each other
    took: float | None = None  # seconds from its start to its first answer
    main: str = main_pipeline.DEFAULT  # its main pipeline's ensemble
    # Of several servers: each ensemble that they load, and its version.
    pipelines: dict[str, int] = field(default_factory=dict)

    @property
    def settings_at_start(self) -> Settings:
        return Settings(DEFAULTS | self.settings)

    @property
    def http(self) -> Address:
        return self.where(self.settings_at_start.http_port)

    @property
    def grpc(self) -> Address:
        return self.where(self.settings_at_start.grpc_port)

    @property
    def admin(self) -> Address | str:
        """Where commands load and unload models over gRPC: Triton's own socket if it is on this
        machine, which needs neither door nor key."""
        if self.flavour == "local":
            with suppress(sockets.NotPrivate):  # a colleague's, in a checkout that a group shares
                return sockets.target(sockets.folder(RUN / self.side))
        return self.grpc

    def where(self, port: int) -> Address:
        return exposure.address(self.settings_at_start, port)

    @property
    def shown(self) -> tuple[Address, Address]:
        """HTTP and gRPC, as people are told: where other machines reach it, if they may."""
        here = getattr(settings.FLAVOURS.get(self.flavour), "IS_REACHED_HERE", False)
        host = "" if here else exposure.find_shown_host(self.settings_at_start.bind)
        http, grpc = self.http, self.grpc
        return (replace(http, host=host), replace(grpc, host=host)) if host else (http, grpc)

    def require_one_server(self) -> None:
        """For what is done to a server, and would be done to any one of several."""
        if self.pipelines:
            cause = f"this is not done on a {self.flavour}, whose servers are many"
            raise UserError(cause, f"extensions/{self.flavour}/README.md")

    def save(self, path: Path = PATH) -> None:
        files.write(path, json.dumps(asdict(self), indent=2) + "\n")


def load(path: Path = PATH) -> State | None:
    try:
        written = json.loads(path.read_bytes())
        known_here = {each.name for each in fields(State)}  # other bundles write more
        known = State(**{name: written[name] for name in known_here & {*written}})
        is_known = known.flavour in ("gpu", "cpu", "local", *settings.FLAVOURS)
        if not (is_known and all(isinstance(each, str) for each in known.settings.values())):
            raise ValueError
        return known
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        raise UserError(
            f"{path} cannot be read ({getattr(fault, 'strerror', 'it is damaged')})",
            "make down, which finds what runs without it, then make up",
        ) from None


def require() -> State:
    """Of the server that runs."""
    known = load()
    if known is None:
        raise UserError("no server is running", "start one: make up")
    return known


def name_start() -> str:
    """The command that starts what is noted again, and no other flavour in its place."""
    with suppress(UserError):
        if known := load():
            return str(getattr(settings.FLAVOURS.get(known.flavour), "START", USUAL_START))
    return USUAL_START


def settings_in_use() -> Settings:
    """Those that the server runs with, which say where its versions are; without one, those of the
    user."""
    known = load()
    return known.settings_at_start if known else Settings.load()


def forget_damaged(path: Path = PATH) -> None:
    try:
        load(path)
    except UserError:
        forget(path)


def forget(path: Path = PATH) -> None:
    path.unlink(missing_ok=True)
