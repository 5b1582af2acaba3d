"""A closed loop of clients: each sends its next question when the last one is answered; and what
processor time that takes of each process of the server.

As light on the processor as Python allows, since it shares the machine with what it measures:
threads that wait in the kernel, one kept connection each, the same bytes again and again.
"""

import functools
import http.client
import itertools
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass

import grpc
import psutil

from bundle_serving import CACHE
from bundle_serving.health import COMPUTED
from bundle_serving.protocol.kserve import pb
from scripts.base.errors import UserError
from scripts.recipes import pipelines

ANSWER_TIMEOUT_S = 60

# Of a question to Triton that is nothing but the bytes of a picture. The same ones come again and
# again, and none is to be answered from memory.
RAW = {"Inference-Header-Content-Length": "0"} | COMPUTED

# A connection: a picture goes in, an answer comes out.
Ask = Callable[[bytes], bytes]
Connect = Callable[[], AbstractContextManager[Ask]]
# What a process is called.
Named = Callable[[psutil.Process], str]


@dataclass(frozen=True)
class Question:
    server: str  # for a message
    connect: Connect
    pictures: Sequence[bytes]  # sent in turn


def infer_path(model: str = "") -> str:
    return f"/v2/models/{model or pipelines.main().ensemble}/infer"


def over_http(address: str, path: str, headers: Mapping[str, str] = RAW) -> Connect:
    return connect_over(
        lambda: http.client.HTTPConnection(address, timeout=ANSWER_TIMEOUT_S), path, headers
    )


def connect_over(
    opened: Callable[[], http.client.HTTPConnection], path: str, headers: Mapping[str, str]
) -> Connect:
    @contextmanager
    def connect() -> Iterator[Ask]:
        connection = opened()

        def ask(picture: bytes) -> bytes:
            connection.request("POST", path, picture, dict(headers))
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                message = body[:200].decode(errors="replace")
                raise UserError(
                    f"{connection.host}{path} answers {answer.status}: {message}",
                    "only servers that answer can be compared",
                )
            return body

        with closing(connection):
            yield ask

    return connect


def over_grpc(target: str) -> Connect:
    """The main pipeline. Neither a question is made anew each time nor an answer taken apart: the
    clients share the processor with what they measure."""
    model = pipelines.main().ensemble

    @functools.cache
    def question(picture: bytes) -> bytes:
        tensor = pb.ModelInferRequest.InferInputTensor(
            name="INPUT", datatype="UINT8", shape=[1, len(picture)]
        )
        request = pb.ModelInferRequest(
            model_name=model, inputs=[tensor], raw_input_contents=[picture]
        )
        request.parameters[CACHE].bool_param = False
        return bytes(request.SerializeToString())

    @contextmanager
    def connect() -> Iterator[Ask]:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(target, options) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            yield lambda picture: bytes(call(question(picture), timeout=ANSWER_TIMEOUT_S))

    return connect


@dataclass(frozen=True)
class Round:
    images_per_second: float
    latencies: list[float]  # of every answer that counts, in seconds
    answered: int = 0  # in all

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies)


@dataclass(frozen=True)
class Answer:
    client: int
    sent: float
    came: float


def measure(question: Question, concurrency: int, seconds: float) -> Round:
    answers: list[Answer] = []
    faults: list[Exception] = []
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        try:
            with question.connect() as ask:
                for picture in itertools.cycle(question.pictures):  # one, however short the time
                    sent = time.perf_counter()
                    ask(picture)
                    came = time.perf_counter()
                    answers.append(Answer(number, sent, came))
                    if faults or came >= end:
                        break
        except Exception as fault:
            faults.append(fault)

    clients = [
        threading.Thread(target=client, args=(number,), daemon=True)
        for number in range(concurrency)
    ]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    if faults:
        fault = faults[0]
        if isinstance(fault, UserError):
            raise fault
        raise UserError(f"{question.server} broke off under load: {fault!r}", "see its log")
    return summary(answers, concurrency, end)


def summary(answers: list[Answer], concurrency: int, end: float) -> Round:
    """Counted from the answer that shows every client at work, to the last one before the end:
    between two answers, so that what is under way at either edge counts for nothing. Of a round
    too short for that, all of it."""
    answers = sorted(answers, key=lambda answer: answer.came)
    first: dict[int, float] = {}
    for answer in answers:
        first.setdefault(answer.client, answer.came)
    begin = max(first.values())
    counted = [answer for answer in answers if begin < answer.came <= end]
    if len(counted) < 2 * concurrency:
        begin, counted = min(answer.sent for answer in answers), answers
    return Round(
        len(counted) / (counted[-1].came - begin),
        [answer.came - answer.sent for answer in counted],
        len(answers),
    )


def measure_cost(
    question: Question,
    concurrency: int,
    seconds: float,
    find: Callable[[], Iterable[psutil.Process]],
    name: Named = psutil.Process.name,
) -> tuple[Round, dict[str, float]]:
    """And milliseconds of the processor a request, by the processes' names."""
    before = sum_cpu_ms(find(), name)
    took = measure(question, concurrency, seconds)
    after = sum_cpu_ms(find(), name)
    return took, {each: (ms - before.get(each, 0)) / took.answered for each, ms in after.items()}


def sum_cpu_ms(processes: Iterable[psutil.Process], name: Named) -> dict[str, float]:
    """So far."""
    spent: dict[str, float] = defaultdict(float)
    for process in processes:
        times = process.cpu_times()
        spent[name(process)] += 1e3 * (times.user + times.system)
    return spent


def processes_of(http: str) -> list[psutil.Process]:
    """Of the server with this port."""
    port = http.rpartition(":")[2]
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "bundle_keeper" in command and port in command:
            return [process, *process.children(recursive=True)]
    raise SystemExit(f"the server on port {port} is gone")
