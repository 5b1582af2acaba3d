"""What the door was started with: its options, what users may set of it (settings.py), and to whom
it is open."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bundle_door.limits import Limits
from bundle_door.settings import NOTHING, TEXT, Keep
from bundle_serving.process.exposure import Exposure
from bundle_serving.process.traces import Collector


@dataclass(frozen=True)
class Traces:
    collector: Collector
    # The share of requests that are traced, of those whose client has not decided it.
    ratio: float


@dataclass(frozen=True)
class Given:
    """The files in front/config/ know these by their names."""

    run_dir: Path
    address: str
    # By name; 0: not opened.
    ports: Mapping[str, int]
    admin_key: str | None
    limits: Limits
    exposure: Exposure
    # Where the models lie, if that is a folder here.
    repository: Path | None = None
    log_format: str = TEXT
    traces: Traces | None = None
    # What outlives the run folder's container, where that has one.
    state_folder: Path = Path()
    # Where a relay hands on what comes to its ports.
    relay_folder: Path | None = None
    # Of the HTTP service; and Envoy's threads.
    processes: int = 1
    # Which requests are kept, and how: in how many bytes, for how many days, and for the owner of
    # which certificate, if there is that file.
    keep: Keep = NOTHING
    keep_bytes: int = 0
    keep_days: int = 0
    keep_for: Path | None = None
    # Whether it is one of several servers, of which some may have a candidate.
    has_others: bool = False
