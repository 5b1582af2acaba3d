"""What is done to a server. Each trial says what it did and saw, and raises `Harmed` where an
answer was not what it should be; whether the server is whole afterwards is for others to see."""

import http.client
import itertools
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import grpc
import psutil

from benchmark.torture import flood, messages, pictures, unfinished
from benchmark.torture.odd_pictures import flat_png
from benchmark.torture.own_server import Own
from benchmark.torture.requests import HARMLESS, RAW, Hostile, attacks, mutants, status_of
from benchmark.torture.subject import PARTS, PICTURE, Subject, harm
from bundle_serving.process import keeper_notes, sockets
from bundle_serving.protocol import kserve
from scripts.base import lock

SEED = 15
TRIAL_S = 5
HEALED_S = 60
SOME, FEW = 16, 4
MOST_ROWS = 256
# All at once would be a flood, which is a trial of its own.
BETWEEN_HANG_UPS_S = 0.005
NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
LARGE = pictures.of_a_megabyte()

Progress = Callable[[str], None]


class Harmed(Exception):
    """The server answered what it should not, or nothing."""


@dataclass(frozen=True)
class Trial:
    name: str
    run: Callable[[Subject, Progress], str]
    # Whether bystanders may be refused or fail meanwhile: something of the server's own is gone.
    takes_something: bool = False


def trials(
    victims: list[str], texts: Mapping[str, str], own: Own | None, scale: float
) -> Iterator[Trial]:
    """All of them; `texts` are pipelines that take some, and the names of their inputs; `scale` is
    1, or less for a shorter form."""
    yield Trial("requests that ended it once", _attacks)
    yield Trial("messages that fill or cut", _messages)
    yield Trial("compressed messages", _compressed)
    yield Trial("mutated requests over HTTP", partial(_over_http, round(5000 * scale)))
    yield Trial("mutated messages over gRPC", partial(_over_grpc, round(3000 * scale)))
    yield Trial("broken and hostile pictures", partial(_pictures, round(2000 * scale)))
    yield Trial("60 MB that are no picture", _large_junk)
    yield Trial("pictures that are too much together", _together)
    for each in texts.items():
        name = f"texts that are too much together: {each[0]}"
        yield Trial(name, partial(_long_texts, *each))
    large = FEW if scale < 1 else SOME
    yield Trial("large pictures, each by itself", partial(_large_pictures, large))
    yield Trial("very many pictures in a message", _rows)
    yield Trial("idle connections", partial(_idle, 2000))
    yield Trial("slow clients", partial(_slow, round(200 * scale), 12))
    for name in unfinished.WAYS:
        yield Trial(name, partial(_unfinished, name))
    yield Trial("clients that hang up", partial(_hang_up, round(1000 * scale)))
    yield Trial("a flood", partial(_flood, round(10_000 * scale)), True)
    for how, victim in itertools.product((signal.SIGKILL, signal.SIGSTOP), victims):
        yield Trial(f"{victim}: {how.name}", partial(_harm_one, victim, how), True)
    yield Trial("the keeper after Envoy: SIGKILL", _without_keeper, True)
    yield Trial("no file descriptors left", _no_files, True)
    if own:
        yield Trial("deleted sockets", partial(_without_sockets, own.disk), True)
        yield Trial("damaged notes", partial(_damaged_notes, own.disk))
        yield Trial("a full disk", partial(_full_disk, own.disk), True)
        yield Trial("a full /dev/shm", partial(_full_memory, own.shared_memory), True)
    if os.getuid() == 0:
        yield Trial("another user's locks", _locks)
    yield Trial("the guard: SIGKILL", _without_guard)


def _attacks(subject: Subject, progress: Progress) -> str:
    _, port = subject.place
    for name, attack in (every := attacks(subject.target())).items():
        progress(name)
        if (status := status_of(attack, port)) != attack.status:
            raise Harmed(f"{name}: {status}, not {attack.status}")
    return f"{len(every)} requests, each refused"


def _messages(subject: Subject, progress: Progress) -> str:
    every = messages.hostile(subject.target())
    with grpc.insecure_channel(subject.grpc) as channel:
        for stream in (False, True):
            ask = messages.make_asker(channel, stream)
            for name, message in every.items():
                progress(name)
                if (code := ask(message)) != grpc.StatusCode.INVALID_ARGUMENT:
                    raise Harmed(f"{name}: {code.name}, not INVALID_ARGUMENT")
    return f"{len(every)} messages, each refused alone and in a stream"


def _compressed(subject: Subject, progress: Progress) -> str:
    """Whatever they would become."""
    with grpc.insecure_channel(subject.grpc, compression=grpc.Compression.Gzip) as channel:
        for stream in (False, True):
            for _ in range(FEW):
                code = messages.make_asker(channel, stream)(bytes(100_000_000))
                if code != grpc.StatusCode.UNIMPLEMENTED:
                    raise Harmed(f"{code.name} for a message in gzip, not UNIMPLEMENTED")
    return f"{FEW} messages of 100 MB in 100 kB, each refused alone and in a stream"


def _over_http(count: int, subject: Subject, progress: Progress) -> str:
    _, port = subject.place
    seeds = subject.target().seeds()
    seen: Counter[object] = Counter()

    def one(mutant: Hostile) -> None:
        status = status_of(mutant, port)
        if status not in HARMLESS:
            raise Harmed(f"{status} for {mutant}"[:500])
        seen[status] += 1
        progress(f"{seen.total()} of {count}")

    with ThreadPoolExecutor(2) as threads:
        for _ in threads.map(one, mutants(seeds, count, SEED)):
            pass
    return f"{count} requests: {_list_counts(seen)}"


def _over_grpc(count: int, subject: Subject, progress: Progress) -> str:
    seen: Counter[object] = Counter()
    for message, code, details in messages.answers(subject.grpc, subject.target(), count, SEED):
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise Harmed(f"{code.name} ({details}) for {message[:200]!r}")
        seen[code.name] += 1
        progress(f"{seen.total()} of {count}")
    return f"{count} messages: {_list_counts(seen)}"


def _pictures(count: int, subject: Subject, progress: Progress) -> str:
    seen: Counter[object] = Counter()

    def one(picture: bytes) -> None:
        status = subject.ask_picture(picture)
        if status not in (200, 400):
            raise Harmed(f"{status} for a picture that begins with {picture[:60]!r}")
        seen[status] += 1
        progress(f"{seen.total()}")

    with ThreadPoolExecutor(2) as threads:
        for _ in threads.map(one, pictures.hostile(count, SEED)):
            pass
    return f"{seen.total()} pictures: {_list_counts(seen)}"


def _large_junk(subject: Subject, progress: Progress) -> str:
    """Each may be as large as a request may be."""
    asked = subject.message(bytes(60_000_000)).SerializeToString()
    with grpc.insecure_channel(
        subject.grpc, [("grpc.max_send_message_length", len(asked))]
    ) as channel:
        ask = messages.make_asker(channel)
        for number in range(FEW):
            progress(f"{number} of {FEW}")
            if (code := ask(asked)) != grpc.StatusCode.INVALID_ARGUMENT:
                raise Harmed(f"{code.name} for 60 MB that are no picture")
    return f"{FEW}, each refused"


def _together(subject: Subject, progress: Progress) -> str:
    """Each of them is answered when it comes alone."""
    picture = flat_png((7000, 7000))
    asked = subject.message(picture * SOME)
    asked.inputs[0].shape[:] = [SOME, len(picture)]
    progress("over gRPC")
    with grpc.insecure_channel(subject.grpc) as channel:
        code = messages.make_asker(channel)(asked.SerializeToString())
    if code != grpc.StatusCode.INVALID_ARGUMENT:
        raise Harmed(f"{code.name} for {SOME} pictures of 49 megapixels over gRPC")
    progress("over HTTP")
    target = subject.target()
    tensor = {**target.tensor, "shape": [SOME, len(picture)]}
    request = replace(target, tensor=tensor, binary=picture * SOME).with_binary(400)
    if (status := status_of(request, subject.place[1])) != 400:
        raise Harmed(f"{status} for {SOME} pictures of 49 megapixels")
    progress("in a form")
    with ThreadPoolExecutor(FEW) as threads:
        answered = [*threads.map(_answered_of_form, [subject] * FEW, [picture] * FEW)]
    if not all(0 < count < SOME / 2 for count in answered):
        raise Harmed(f"of {SOME} pictures of 49 megapixels in each form, {answered} were answered")
    return (
        f"{SOME} pictures of 49 megapixels in a request, refused; in {FEW} forms all but {answered}"
    )


def _long_texts(pipeline: str, name: str, subject: Subject, progress: Progress) -> str:
    """Each of them is answered when it comes alone."""
    text = b"good " * 200_000
    asked = kserve.pb.ModelInferRequest(model_name=pipeline)
    asked.inputs.add(name=name, datatype="BYTES", shape=[SOME, 1])
    asked.raw_input_contents.append((len(text).to_bytes(4, "little") + text) * SOME)
    with grpc.insecure_channel(subject.grpc) as channel:
        for number in range(FEW):
            progress(f"{number} of {FEW}")
            code = messages.make_asker(channel)(asked.SerializeToString())
            if code != grpc.StatusCode.INVALID_ARGUMENT:
                raise Harmed(f"{code.name} for {SOME} texts of {len(text):,} characters")
    return f"{FEW} messages of {SOME} texts of {len(text):,} characters, each refused"


def _large_pictures(count: int, subject: Subject, progress: Progress) -> str:
    """One a request, which all are taken."""
    message, answered = subject.message(flat_png((7000, 7000))), 0
    progress("over gRPC")
    with grpc.insecure_channel(subject.grpc) as channel:
        asked = [kserve.stub(channel).ModelInfer.future(message, HEALED_S) for _ in range(count)]
        for each in asked:
            answered += each.exception() is None
    progress("over HTTP")
    with ThreadPoolExecutor(count) as threads:
        pictures_ = [message.raw_input_contents[0]] * count
        answered += sum(status == 200 for status in threads.map(subject.ask_picture, pictures_))
    if answered < 2 * count:
        raise Harmed(f"{answered} of {2 * count} pictures of 49 megapixels were answered")
    return f"{answered} pictures of 49 megapixels, answered in turn"


def _answered_of_form(subject: Subject, picture: bytes) -> int:
    part = b"--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n%s\r\n" % picture
    client = http.client.HTTPConnection(subject.http, timeout=HEALED_S)
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    client.request("POST", "/classify", part * SOME + b"--b--\r\n", headers)
    return sum("labels" in each for each in json.loads(client.getresponse().read())["results"])


def _rows(subject: Subject, progress: Progress) -> str:
    """As many small pictures in a message as the model's config allows: a slow network refuses
    them, and a fast one has soon answered them."""
    seen: Counter[object] = Counter()
    asked = subject.message(PICTURE * MOST_ROWS)
    asked.inputs[0].shape[:] = [MOST_ROWS, len(PICTURE)]

    def ask(_: int) -> None:
        with grpc.insecure_channel(subject.grpc) as channel:
            code = messages.make_asker(channel)(asked.SerializeToString())
        if code not in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT):
            raise Harmed(f"{code.name} for {MOST_ROWS} pictures")
        seen["answered" if code == grpc.StatusCode.OK else "refused"] += 1
        progress(f"{seen.total()} of {SOME}")

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(ask, range(SOME)))
    return f"{SOME} messages of {MOST_ROWS} small pictures: {_list_counts(seen)}"


@contextmanager
def _connections(subject: Subject, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(subject.place)) for _ in range(count)]


def _wait_out(progress: Progress) -> None:
    for second in range(TRIAL_S):
        progress(f"{second} of {TRIAL_S} s")
        time.sleep(1)


def _idle(count: int, subject: Subject, progress: Progress) -> str:
    _raise_file_limit()
    with _connections(subject, count):
        _wait_out(progress)
    return f"{count} connections that say nothing"


def _slow(count: int, seconds: int, subject: Subject, progress: Progress) -> str:
    """Half of them with their headers, half with their body."""
    begun = b"POST /classify HTTP/1.1\r\nHost: localhost\r\n"
    with _connections(subject, count) as connections, selectors.DefaultSelector() as ended:
        for number, connection in enumerate(connections):
            length = b"Content-Length: 1000\r\n\r\n" if number % 2 else b""
            connection.sendall(begun + length)
            ended.register(connection, selectors.EVENT_READ)
        for second in range(seconds):
            progress(f"{second} of {seconds} s")
            for key, _ in ended.select(0):
                ended.unregister(key.fileobj)
            for key in ended.get_map().values():
                _drip(key.fileobj)  # type: ignore[arg-type]
            time.sleep(1)
        left = len(ended.get_map())
    return f"{count} clients of a byte a second; after {seconds} s {count - left} were dropped"


def _drip(connection: socket.socket) -> None:
    with suppress(OSError):  # dropped: the selector will say so
        connection.send(b"x")


def _unfinished(name: str, subject: Subject, progress: Progress) -> str:
    _raise_file_limit()
    with unfinished.WAYS[name](subject):
        _wait_out(progress)
    return f"for {TRIAL_S} s"


def _hang_up(count: int, subject: Subject, progress: Progress) -> str:
    request = Hostile(200, LARGE, RAW, f"/v2/models/{subject.pipeline}/infer")
    wire = b"".join(request.pieces())
    for number in range(count):
        progress(f"{number} of {count}")
        client = socket.create_connection(subject.place)
        with client, suppress(OSError):  # refused already
            client.sendall(wire)
        time.sleep(BETWEEN_HANG_UPS_S)
    return f"{count} pictures of 1 MB whose clients were gone at once"


def _flood(count: int, subject: Subject, progress: Progress) -> str:
    _raise_file_limit()
    began = time.monotonic()
    seen = flood.statuses(subject, count, progress)
    if seen.keys() - {200, flood.REFUSED}:
        raise Harmed(f"{_list_counts(Counter(seen))} (0: no answer within {flood.DEADLINE_S} s)")
    took = time.monotonic() - began
    return f"{count:,} at once: {_list_counts(Counter(seen))}; the last after {took:.0f} s"


def _harm_one(victim: str, how: signal.Signals, subject: Subject, progress: Progress) -> str:
    process = subject.running()[victim][0]
    progress(f"process {process.pid}")
    harm(process, how)
    return f"one process of {len(subject.running().get(victim, [])) + 1}"


def _without_keeper(subject: Subject, progress: Progress) -> str:
    """By connections that waited for Envoy to be back."""
    waited = [http.client.HTTPConnection(subject.http, timeout=HEALED_S) for _ in range(SOME)]

    def ask(connection: http.client.HTTPConnection) -> int:
        connection.request("POST", f"/v2/models/{subject.pipeline}/infer", PICTURE, RAW)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def is_kept_open() -> bool:
        opened = subject.running()["keeper"][0].net_connections("tcp")
        return any(subject.http.endswith(f":{each.laddr.port}") for each in opened)

    _wait(is_kept_open, "the keeper does not keep the port open")
    running = subject.running()
    with ThreadPoolExecutor(SOME) as threads, ExitStack() as stack:
        for each in waited:
            stack.callback(each.close)
        for victim in ("envoy", "keeper"):
            progress(f"{victim} is killed")
            harm(running[victim][0], signal.SIGKILL)
            try:
                seen: Counter[object] = Counter(threads.map(ask, waited))
            except (OSError, http.client.HTTPException) as fault:
                raise Harmed(f"{victim} took a connection with it ({fault!r})") from None
            if {*seen} != {200}:
                raise Harmed(f"after {victim}'s end {_list_counts(seen)}")
    return f"{SOME} connections that waited for Envoy were answered, and again without the keeper"


def _no_files(subject: Subject, progress: Progress) -> str:
    """None of them may open another one, for some seconds."""
    before = {}
    for name in ("door", "envoy", "server"):
        for process in subject.running()[name]:
            limit = _limit_files(process, "--nofile", "--output=SOFT", "--raw", "--noheadings")
            before[process] = int(limit)
            _limit_files(process, f"--nofile={process.num_fds()}:")
    try:
        with _connections(subject, 100):
            _wait_out(progress)
    finally:
        for process, most in before.items():
            if process.is_running():
                _limit_files(process, f"--nofile={most}:")
    return f"{TRIAL_S} s, in which 100 clients came"


def _limit_files(process: psutil.Process, *words: str) -> str:
    """As its own user: in a container that is another one, whose limits even root may not set."""
    user, group = process.uids().real, process.gids().real
    itself = ["setpriv", f"--reuid={user}", f"--regid={group}", "--keep-groups"]
    command = [*itself, "prlimit", f"--pid={process.pid}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _without_sockets(disk: Path, subject: Subject, progress: Progress) -> str:
    """Who has a connection goes on for a while, and nobody gets a new one."""
    folder = disk / sockets.USUAL
    deleted = [each for each in folder.iterdir() if each.is_socket()]
    for each in deleted:
        each.unlink()
    _wait(lambda: all(each.is_socket() for each in deleted), "the sockets are not back")
    return f"{len(deleted)}, each made again"


def _locks(subject: Subject, progress: Progress) -> str:
    """On what commands wait for, and the keeper."""
    files = lock.OF_CHANGES, lock.hands_off_file()
    for file in files:
        progress(file.name)
        locks = subprocess.run([*NOBODY, "flock", "--nonblock", file, "true"], capture_output=True)
        if not locks.returncode:
            raise Harmed(f"another user can lock {file}")
    return f"{len(files)}, each refused"


def _without_guard(subject: Subject, progress: Progress) -> str:
    """The keeper takes its place."""
    keeper, subject.left = subject.running()["keeper"][0], subject.family()
    harm(psutil.Process(subject.root), signal.SIGKILL)
    subject.root = keeper.pid
    return "its place was taken"


def _damaged_notes(disk: Path, subject: Subject, progress: Progress) -> str:
    """Of the keeper's, of which the door reads whether it is ready."""
    note = disk / keeper_notes.STATE
    note.write_bytes(b"\xff{")
    _wait(lambda: b"\xff" not in note.read_bytes(), "the note stays damaged")
    return "written again"


def _wait(done: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + HEALED_S
    while not done():
        if time.monotonic() > deadline:
            raise Harmed(f"{otherwise} after {HEALED_S} s")
        time.sleep(0.1)


def _full_disk(disk: Path, subject: Subject, progress: Progress) -> str:
    """And a model's process is killed meanwhile."""
    before, running = subject.expected_processes(), subject.running()
    victim = next(running[name][0] for name in running if name not in PARTS)
    with _fill_disk(disk):
        progress("a model's process is killed")
        harm(victim, signal.SIGKILL)
        seconds = subject.until_whole(before, HEALED_S)
        for _ in range(SOME):
            subject.ask_picture(LARGE)
    healed = "never" if seconds is None else f"after {seconds:.1f} s"
    return f"a model's process, killed meanwhile, was back {healed}"


def _full_memory(folder: Path, subject: Subject, progress: Progress) -> str:
    """And pictures come that want more of it."""
    seen: Counter[object] = Counter()
    with _fill_disk(folder), ThreadPoolExecutor(SOME) as threads:
        for status in threads.map(subject.ask_picture, [LARGE] * SOME):
            seen[status] += 1
            progress(f"{seen.total()} of {SOME} pictures of 1 MB")
    return f"pictures of 1 MB: {_list_counts(seen)}"


@contextmanager
def _fill_disk(folder: Path) -> Iterator[None]:
    file = folder / "filler"
    try:
        with suppress(OSError), file.open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        yield
    finally:
        file.unlink()


def _list_counts(seen: Counter[object]) -> str:
    return ", ".join(f"{count} x {what}" for what, count in seen.most_common())


def _raise_file_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
