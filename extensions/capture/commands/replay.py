"""Asks again what was asked and kept (KEEP), each request at its own time, and compares.

    make replay                         the running server, about what it kept
    make replay OF=folder               about a copy: make captured TO=folder
    make replay OF=log.txt IMAGES=photos   a log, as make logs shows it, and pictures instead
    make replay KEY=capture.key         with what is encrypted
    make replay VERSION=3               another version, loaded beside the live one; MODEL=birds: of
                                        another pipeline
    make replay URL=host:8000           another server
    make replay SPEED=2                 twice as fast
    make replay EVAL=folder             those that have a label there are judged by it

Says how many labels changed, how long it took and how many were refused, then and now; and what
processor time a request takes. Nothing of it counts in the server's metrics.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bundle_serving.address import Address
from extensions.capture import replaying
from extensions.capture.arguments import key, of, speed, url
from extensions.capture.kept import Kept, find_server
from extensions.capture.replaying import Compared, Past, Present
from scripts.base import console, lock, tables
from scripts.base.errors import UserError
from scripts.measuring import server_side
from scripts.recipes import pipelines
from scripts.repository import history
from scripts.rollout import rollout
from scripts.rollout.rollout import InPlace
from scripts.rollout.shadow import tried_beside
from scripts.settings import arguments
from scripts.stacks import state

Look = Callable[[], object]


def main() -> None:
    asked = arguments.load()
    pasts = read(of.value_in(asked), asked.images, key.value_in(asked))
    # By the names of their files, which are the ids of requests.
    labelled = Path(asked.eval_).glob("*/*") if asked.eval_ else ()
    pace, labels = speed.value_in(asked), {path.stem: path.parent.name for path in labelled}
    if where := url.value_in(asked):
        show(*ask(pasts, Address.parse(where), pace), labels, None)
        return
    server = find_server()
    metrics = server.where(server.settings_at_start.metrics_port)
    with load_beside(asked.version, pasts) as (about, look):
        before = server_side.parse_processes(server_side.fetch_metrics(metrics))
        about, presents = ask(about, server.http, pace, look)
        after = server_side.parse_processes(server_side.fetch_metrics(metrics))
    spent = sum(server_side.per_picture(before, after, len(about)).values())
    show(about, presents, labels, spent)


def read(place: str, pictures: str, private: Path | None) -> list[Past]:
    if Path(place).is_file():
        if not pictures:
            raise UserError("a log has no pictures", "name a folder of some: IMAGES=photos")
        return replaying.read_log(Path(place), Path(pictures))
    if pasts := replaying.read_kept(Kept.find(place, private)):
        return pasts
    raise UserError("nothing was kept", f"KEEP says what is: {state.name_start()} KEEP=1%")


@contextmanager
def load_beside(version: int | None, pasts: list[Past]) -> Iterator[tuple[list[Past], Look]]:
    """What is to be asked, once the version is there, and what looks after the server meanwhile."""
    if version is None:
        yield pasts, lambda: None
        return
    pipeline = pipelines.find_asked_pipeline()
    its_own = [past for past in pasts if past.pipeline == pipeline.ensemble]
    if not its_own:
        raise UserError(f"no request of {pipeline.ensemble} was kept", "name another: MODEL=")
    with lock.one_at_a_time():
        up = rollout.find_running_server(pipeline)
        proved = rollout.prove(up, version, history.REPLAY, judge_labels=False)
        switch = InPlace(up, proved)
        with tried_beside(switch, history.REPLAY, describe=str):
            instead = [replaying.ask_instead(past, switch.candidate) for past in its_own]
            yield instead, switch.require_well


def ask(
    pasts: Sequence[Past], address: Address, pace: float, look: Look = lambda: None
) -> tuple[list[Past], list[Present]]:
    """What was asked, and what became of it now."""
    seconds = (pasts[-1].at - pasts[0].at) / pace
    what = f"asking {len(pasts):,} requests again, for {seconds:,.0f} s"
    with console.waiting(what) as waiting:

        def tell(count: int) -> None:
            look()
            waiting.show(f"{count:,} of {len(pasts):,}")

        asked, presents = replaying.replay(pasts, address, pace, tell)
    if not asked:
        raise UserError("none of them is kept any more", "copy them first: make captured TO=folder")
    if gone := len(pasts) - len(asked):
        console.note(f"{gone:,} requests had gone before they were asked again")
    return asked, presents


def show(
    pasts: Sequence[Past], presents: list[Present], labels: dict[str, str], spent: float | None
) -> None:
    compared = Compared(pasts, presents, labels)
    tables.show("lrr", ("", "then", "now"), compared.list_rows())
    for line in compared.list_notes():
        console.note(line)
    if spent is not None:
        hours = spent * 1e6 / 1000 / 3600
        console.note(
            f"the server took {spent:.1f} ms of processor time for each; a million take"
            f" {hours:.1f} core hours"
        )
