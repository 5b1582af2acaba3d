"""What a shadow costs those who ask the live version.

    make publish MAX_MEGAPIXELS=40
    python -m benchmark.shadow VERSION [--rounds 3] [--seconds 30] [--clients 2]

Clients ask the running server over HTTP, each a pause of its last answer's time after that; without
a shadow, with copies of 10% and of all requests, in turns. Prints the percentiles of each way, from
the smallest to the largest of the rounds, and what became of the copies.
"""

import argparse
import io
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from bundle_client import Client
from scripts.artefacts.picture import mug
from scripts.base import console, lock, tables
from scripts.base.errors import run_guarded
from scripts.measuring.confidence import spread
from scripts.recipes import pipelines
from scripts.rollout import rollout
from scripts.rollout.rollout import InPlace
from scripts.rollout.shadow import Seen
from scripts.server.triton import triton_api

WAYS = {"without": 0, "copies of 10%": 10, "copies of all": 100}
SEEN_S = 6  # until the door knows of another share


@dataclass
class Asked:
    ms: list[float] = field(default_factory=list)
    failed: int = 0

    def add(self, url: str, picture: bytes, until: float) -> None:
        with Client(url=url) as client:
            while (began := time.perf_counter()) < until:
                try:
                    client.classify(picture)
                except Exception:
                    self.failed += 1
                took = time.perf_counter() - began
                self.ms.append(1000 * took)
                time.sleep(took)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--clients", type=int, default=2)
    options = parser.parse_args()
    up = rollout.find_running_server(pipelines.find_asked_pipeline())
    switch = InPlace(up, rollout.prove(up, options.version, "shadow", judge_labels=False))
    found: dict[str, list[Asked]] = {way: [] for way in WAYS}
    with lock.one_at_a_time(), lock.hands_off():
        try:
            switch.load_beside(is_unseen=True)
            triton_api.post(up.server.http, "/shadows")
            for way in list(WAYS) * options.rounds:
                switch.share_with_clients(0, copies=WAYS[way])
                ask(up.server.http.url, options.clients, SEEN_S)
                with console.waiting(f"{way}: {options.seconds:g} s of requests"):
                    asked = ask(up.server.http.url, options.clients, options.seconds)
                found[way].append(asked)
            seen = Seen.read(up.server.http, options.version)
        finally:
            switch.back()
    rows = [
        (way, f"{sum(each.failed for each in rounds)} of {sum(len(each.ms) for each in rounds):,}",
         *(spread([float(np.percentile(each.ms, at)) for each in rounds]) for at in (50, 99)))
        for way, rounds in found.items()
    ]  # fmt: skip
    tables.show("lrrr", ("way", "failed", "p50, ms", "p99, ms"), rows)
    console.say(seen.describe())
    return 0


def ask(url: str, clients: int, seconds: float) -> Asked:
    drawing = io.BytesIO()
    mug().save(drawing, "JPEG")
    asked, until = Asked(), time.perf_counter() + seconds
    with ThreadPoolExecutor(clients) as pool:
        for done in [
            pool.submit(asked.add, url, drawing.getvalue(), until) for _ in range(clients)
        ]:
            done.result()
    return asked


if __name__ == "__main__":
    sys.exit(run_guarded(main))
