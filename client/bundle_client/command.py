"""Ask a triton-bundle server what is in pictures.

    python -m bundle_client mug.jpg
    python -m bundle_client --out labels.csv photos/
    curl -s https://example.org/mug.jpg | python -m bundle_client -

A SOURCE is a file, a folder of pictures, an http(s) URL, or - for standard input.
Exit codes: 0 every picture was answered, 1 some were not, 2 wrong usage,
3 the server is unreachable, 130 Ctrl-C.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from . import show
from .answers import Result
from .client import Client
from .errors import CONCERNS_ALL, ClientError, ServerUnreachable
from .server import PORTS, PROTOCOLS, TIMEOUT_S
from .sources import Source, expand, is_standard_input, name_of

ANSWERED, FAILED, UNREACHABLE, INTERRUPTED = 0, 1, 3, 130
# Up to so many pictures get a table each, more of them a line each.
FEW = 5
NAME_WIDTH = 40


def run(argv: Sequence[str] | None) -> int:
    """Ask as the arguments say; returns the exit code."""
    # A file name or label that the terminal cannot show must not end the run.
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed
        stream.reconfigure(errors="backslashreplace")
    parser = arguments()
    options = parser.parse_args(argv)
    if "-" in options.sources and (sys.stdin is None or sys.stdin.isatty()):
        is_what = "closed" if sys.stdin is None else "a terminal"
        parser.error(f"- reads a picture from standard input, which is {is_what} here")
    named = [sys.stdin.buffer if source == "-" else source for source in options.sources]
    try:
        with hold_back_interrupts():
            client = Client(
                options.url,
                options.protocol,
                options.model,
                options.timeout,
                api_key=options.api_key,
                ca_file=options.ca_file,
                server_name=options.server_name,
            )
        sources = list(expand(named))
        ask = partial(client.classify_many, top=options.top, concurrency=options.concurrency)
        # With a file, here only to refuse wrong numbers: it says first what is to be asked.
        answers = ask([] if options.out else sources)
    except ValueError as exc:
        parser.error(str(exc))
    except ClientError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return FAILED
    if options.out:
        return report_to_file(options.out, sources, ask, options.top)
    text = show.as_json if options.json else for_people(sources)
    return report(
        answers,
        len(sources),
        print_as(text),
        failures_too=options.json,
        counts=len(sources) > FEW and not options.json,
    )


def print_as(text: Callable[[Result], str]) -> Callable[[Result], None]:
    return lambda result: print(text(result), flush=True)


def report_to_file(
    out: Path,
    sources: Sequence[Source],
    ask: Callable[[Sequence[Source]], Iterator[Result]],
    top: int,
) -> int:
    """About those that it has not yet."""
    from .answer_file import keep_answers
    from .progress import with_lines

    try:
        with keep_answers(out, top) as file:
            # What comes by standard input is another picture each time.
            new = [
                source
                for source in sources
                if is_standard_input(source) or name_of(source) not in file.known
            ]
            if known := len(sources) - len(new):
                print(f"{known} of {len(sources)} are in {out} already", file=sys.stderr)
            return report(with_lines(ask(new), len(new)), len(new), file.add, counts=True)
    except ClientError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return FAILED


def report(
    answers: Iterator[Result],
    total: int,
    write: Callable[[Result], object],
    *,
    failures_too: bool = False,
    counts: bool,
) -> int:
    """Write the results as they come, and after many of them how many there were."""
    many = total > FEW
    results = show_below(answers, total) if many else answers
    started = time.monotonic()
    answered = failed = 0
    code = ANSWERED
    try:
        for result in results:
            if result.error is None:
                answered += 1
            else:
                failed += 1
                code = UNREACHABLE if isinstance(result.error, ServerUnreachable) else FAILED
                show.print_error(result)
            if result.error is None or failures_too:
                write(result)
            if isinstance(result.error, CONCERNS_ALL):
                break
    except KeyboardInterrupt:
        code = INTERRUPTED
    if answered and counts:
        left = total - answered - failed
        seconds = time.monotonic() - started
        print(show.as_summary(answered, failed, left, seconds), file=sys.stderr)
    return code


def show_below(answers: Iterator[Result], total: int) -> Iterator[Result]:
    from rich.console import Console

    from .progress import with_bar

    return with_bar(answers, total, Console(stderr=True))


@contextmanager
def hold_back_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back while numpy is imported, which would make an ImportError of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def for_people(sources: Sequence[Source]) -> Callable[[Result], str]:
    from rich.console import Console

    console = Console()
    if len(sources) <= FEW:
        gap = "\n" if len(sources) > 1 else ""
        return lambda result: show.as_table(result, console) + gap
    width = min(max(len(name_of(source)) for source in sources), NAME_WIDTH)
    return lambda result: show.as_line(result, width, console)


def arguments() -> argparse.ArgumentParser:
    ports = " or ".join(f"localhost:{PORTS[protocol]} for {protocol}" for protocol in PROTOCOLS)
    parser = argparse.ArgumentParser(
        prog="python -m bundle_client",
        usage="%(prog)s [options] SOURCE...",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("sources", nargs="+", metavar="SOURCE", help=argparse.SUPPRESS)
    add(
        "--url",
        default=os.environ.get("BUNDLE_URL"),
        help=f"the server's host:port; $BUNDLE_URL if that is set, else {ports}",
    )
    add(
        "--api-key",
        default=os.environ.get("BUNDLE_API_KEY"),
        metavar="KEY",
        help="if the server requires one; better $BUNDLE_API_KEY: other users can see options",
    )
    add(
        "--ca-file",
        default=os.environ.get("BUNDLE_CA_FILE"),
        metavar="FILE",
        help="certificates to trust (or the server's own); $BUNDLE_CA_FILE if that is set",
    )
    add(
        "--server-name",
        default=os.environ.get("BUNDLE_SERVER_NAME"),
        metavar="NAME",
        help="the name in its certificate, if not the one in its address; $BUNDLE_SERVER_NAME",
    )
    add("--protocol", choices=PROTOCOLS, default="http", help="default: %(default)s")
    add("--model", metavar="NAME", help="default: the server's main pipeline")
    add("--top", type=int, default=5, metavar="N", help="labels per picture; default: %(default)s")
    into = parser.add_mutually_exclusive_group().add_argument
    into(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the answers to a .csv, .jsonl or .parquet; go on where an earlier run ended",
    )
    into("--json", action="store_true", help="for programs: one JSON object per line and picture")
    add(
        "--concurrency",
        type=int,
        default=4,
        metavar="N",
        help="pictures sent at once; default: %(default)s",
    )
    add(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long to wait for one answer, or for one URL; default: %(default)g",
    )
    return parser
