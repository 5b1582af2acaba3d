"""Shows what was kept of requests and their answers (KEEP), copies it, and forgets.

    make captured                       how many, of which pipelines and versions
    make captured TO=folder             copies all: a file a day of JSON lines, pictures beside
    make captured TO=s3://bucket/kept   copies there what is not there yet
    make captured TO=s3://… FOLLOW=1    moves there what comes, until Ctrl-C
    make captured TO=folder MOST=50     the pictures most worth a label, by what they were called;
                                        MODEL=birds: by another pipeline
    make captured FORGET=id             removes a request, by its x-request-id
    make captured SEAL=capture.key      from now on encrypted for this private key, which it writes
    make captured KEY=capture.key TO=…  and copied with it

OF=folder or OF=s3://bucket/kept is such a copy, instead of what the server has.
"""

import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from bundle_door.watching.captures import CERTIFICATE, Record
from extensions.capture.arguments import forget, key, most, of, seal
from extensions.capture.kept import (
    Kept,
    Store,
    find_server,
    is_elsewhere,
    is_sealed,
    lack_openssl,
)
from scripts.base import console, files, interrupts, tables
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.server.triton import triton_api
from scripts.settings import arguments
from scripts.stacks import admin_key, state

# Between two looks at what is there: of time, and in terms of what the last took; and while S3 is
# away.
PAUSE_S, PAUSES, MOST_PAUSE_S = 5.0, 10, 60.0
AT_ONCE = 5_000  # which leave the server: even of the longest ids, less than a megabyte
NEW_KEY = ("req", "-x509", "-newkey", "rsa:3072", "-nodes", "-days", "36500", "-subj", "/CN=kept")


def main() -> int:
    asked = arguments.load()
    if place := seal.value_in(asked):
        make_key(place)
    elif id := forget.value_in(asked):
        remove(id, of.value_in(asked))
    elif asked.follow:
        if not is_elsewhere(asked.to) or of.value_in(asked) or most.value_in(asked):
            why = "FOLLOW=1 moves to S3 what the server keeps"
            raise UserError(why, "name that alone: TO=s3://bucket/kept FOLLOW=1")
        return move_on(asked.to)
    else:
        kept = Kept.find(of.value_in(asked), key.value_in(asked))
        if not kept.records:
            console.note(f"nothing was kept; KEEP says what is: {state.name_start()} KEEP=1%")
        elif is_elsewhere(asked.to):
            with console.waiting(f"copying to {asked.to}") as waiting:
                count = Store.open(asked.to).add(kept.records, kept.fetch, waiting.show)
            console.note(f"copied {count:,} requests to {asked.to}")
        elif asked.to:
            copy(kept, Path(asked.to), most.value_in(asked))
        else:
            show(kept.records)
    return 0


def move_on(to: str) -> int:
    """What the server has kept is there only as long as S3 is away, or for a pause. What does not
    work at first ends it; later it may be away for a while, as the server may."""
    moved, pause, away = move(to), PAUSE_S, False
    console.note(f"moved {moved:,} requests to {to}; it goes on, until Ctrl-C")
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(pause)
            began = time.monotonic()
            try:
                moved += (now := move(to))
            except UserError as fault:
                if not away:
                    console.note(f"{fault.cause}: requests wait, as many as KEEP_MB has room for")
                away, pause = True, min(2 * pause, MOST_PAUSE_S)
                continue
            if away:
                console.note(f"moved {now:,} requests that had waited")
            # The more lines a day has, the longer it takes to write them again.
            away, pause = False, max(PAUSE_S, PAUSES * (time.monotonic() - began))
    console.note(f"moved {moved:,} requests to {to}")
    return interrupts.INTERRUPTED


def move(to: str) -> int:
    kept = Kept.find("", None)
    count = Store.open(to).add(kept.records, kept.fetch)
    known = [(record["id"], record["time"]) for record in kept.records]
    for at in range(0, len(known), AT_ONCE):
        triton_api.post(find_server().http, "/captures", known[at : at + AT_ONCE])
    return count


def show(records: list[Record]) -> None:
    def name(record: Record) -> tuple[str, ...]:
        what = ("", "encrypted") if is_sealed(record) else (record["version"], record["pipeline"])
        return record["time"][:10], *what

    counted = Counter(map(name, records))
    rows = [(day, f"{count:,}", *what) for (day, *what), count in counted.items()]
    tables.show("lrrl", ("day", "requests", "version", "pipeline"), rows)


def copy(kept: Kept, to: Path, most: int | None) -> None:
    files.require_new(to)
    with files.whole_folder(to) as draft:
        if most is None:
            told = f"copied {kept.lay_out(draft):,} requests to {to}"
        else:
            pipeline = pipelines.find_asked_pipeline()
            name = pipeline.ensemble
            if not (count := kept.lay_out_for_labels(draft, most, name)):
                raise UserError(f"no picture that {name} named was kept", "name another: MODEL=")
            told = (
                f"copied {count:,} pictures to {to}, each to the folder of what it was called: move"
                f" those that are something else, then make eval EVAL={to}{pipeline.option}"
            )
    console.note(told)


def remove(id: str, place: str) -> None:
    if is_elsewhere(place):
        count = Store.open(place).forget(id)
    elif place:
        raise UserError(f"{place} is a copy of yours", "remove it there")
    else:
        count = triton_api.delete(find_server().http, f"/captures?id={quote(id)}")
    if not count:
        raise UserError(f"of {id} nothing was kept", "make logs has the ids of requests")
    console.note(f"removed {count:,} requests; copies of them are yours to remove")


def make_key(place: Path) -> None:
    """The server needs the certificate alone."""
    if place.exists():
        raise UserError(f"{place} exists", "name a file that is new: SEAL=capture.key")
    certificate = admin_key.ensure().with_name(CERTIFICATE)
    place.parent.mkdir(parents=True, exist_ok=True)
    with files.whole_file(certificate) as draft:
        command = ["openssl", *NEW_KEY, "-keyout", str(place), "-out", str(draft)]
        try:
            made = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise lack_openssl() from None
        if made.returncode:
            raise UserError(f"openssl makes no key: {made.stderr.strip()[:200]}", "look at SEAL=")
        if not (place.stat().st_size and draft.stat().st_size):  # of which openssl says nothing
            place.unlink()
            raise UserError("there was no room for the key", "make room, then run it again")
        draft.chmod(0o644)  # in a container its reader is another user
    console.note(f"what is kept from now on can be read with {place} alone: keep it elsewhere")
