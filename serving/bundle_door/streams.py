"""The door's own gRPC server. Of streams each message is passed on unchanged, once its size and
what it asks are checked, and the key again.

Envoy can only check complete requests, and a stream is never complete; the key it checks when a
stream begins. Single messages come here at times (singles.py).
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from itertools import accumulate
from pathlib import Path

import grpc
from google.protobuf.message import DecodeError

from bundle_door.access.keys import Keys
from bundle_door.answers import Answer, Refused
from bundle_door.front import messages
from bundle_door.front.messages import NUMBER
from bundle_door.limits import AHEAD_S, LATE_S, SLOWEST, Limits, busy
from bundle_door.requests import CLIENT_HEADER, Request, address_of
from bundle_door.triton import OF_SEVERAL, SERVICE, Triton
from bundle_serving.address import BALANCER_HEADER
from bundle_serving.protocol.kserve import pb

METHOD, SINGLE = "ModelStreamInfer", "ModelInfer"
# By which a client wants an error's status, which ends the stream, instead of its text alone.
WITH_STATUS = "triton_grpc_error"
# What Triton says of each answer in a stream: whether it is the last one to its request.
FINAL = "triton_final_response"

# Of streams that wait for an answer when the server stops, or their balancer.
DRAIN_S = 18.0
STOPS = "the server is stopping; open the stream again"
# For a stream that Envoy knows already, which tells again after a second.
LOOK_S, LOOKS = 0.05, 20
TOO_SLOW = "the message comes too slowly; send it again"
# Of all streams: of large messages that are not complete, and of those that are not answered.
MOST_BYTES = 320 << 20
# What a refused message or key ends its stream with.
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


def code_of(refused: Refused) -> grpc.StatusCode:
    return CODES.get(refused.status, grpc.StatusCode.INTERNAL)


AnswerSingle = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


class Admitted:
    """The messages of a stream, until one or its key is refused, or the server stops."""

    def __init__(
        self,
        messages: AsyncIterator[bytes],
        triton: Triton,
        keys: Keys | None,
        sent: Mapping[str, str],
    ) -> None:
        self._messages, self._triton, self._keys = messages, triton, keys
        self._authorization = sent.get("authorization", "")
        self._stopping = asyncio.Event()
        # By whose way it came.
        self.balancer = sent.get(BALANCER_HEADER)
        self.refused: Refused | None = None
        # When its last message came, and how many did.
        self.since = time.monotonic()
        self.complete = 0
        self.number = sent.get(NUMBER)
        self.client = (keys and sent.get(CLIENT_HEADER)) or address_of(sent)
        # How much of a large message is there, by when it should go on, and whether it can.
        self.bytes, self.due, self.reading = 0, 0.0, False
        # What was told last, perhaps of a message after that.
        self.told = (0, 0)
        # The sizes of messages that are here or in Triton, and not answered yet.
        self.asked: deque[int] = deque()

    @property
    def held(self) -> int:
        return self.bytes + sum(self.asked)

    def note_answer(self) -> None:
        """To one of them, whichever; a model may also give several to one, or none."""
        if self.asked:
            self.asked.popleft()

    def stop(self) -> None:
        """Takes no more; what it has taken is answered."""
        self._stopping.set()

    def arrive(self, message: int, count: int) -> None:
        """So much of it, as Envoy saw; or all by now."""
        self.told = max(self.told, (message, count))
        if message == self.complete:
            ahead = time.monotonic() + AHEAD_S
            self.due = min(self.due + (count - self.bytes) / SLOWEST, ahead)
            self.bytes = count

    def is_late(self) -> bool:
        return self.reading and self.bytes > 0 and self.due + LATE_S < time.monotonic()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        begins = True
        async for message in self._until_the_server_stops():
            try:
                messages.check(message)
                if self._keys and not begins:
                    await self._keys.admit(self._authorization)
                if self._keys:
                    self._keys.charge_message(self._authorization, message)
                await self._triton.wait_until_loaded(message)
                await self._triton.refuse_classes_of(message)
            except Refused as refused:
                self.refused = refused
                return
            except DecodeError:  # such as a name that is not UTF-8, whose length alone was checked
                self.refused = messages.malformed()
                return
            begins = False
            yield message

    async def _until_the_server_stops(self) -> AsyncIterator[bytes]:
        stopping = asyncio.create_task(self._stopping.wait())
        coming = asyncio.create_task(self._next())
        try:
            while not self._stopping.is_set():
                await asyncio.wait((coming, stopping), return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    if (message := coming.result()) is None:
                        return
                    coming = asyncio.create_task(self._next())
                    yield message
            self.refused = Refused(503, STOPS)
        finally:
            coming.cancel()
            stopping.cancel()

    async def _next(self) -> bytes | None:
        """The one after it is not taken before this one is wanted, however long that may be."""
        self.reading, self.due = True, time.monotonic() + AHEAD_S
        try:
            message: bytes | None = await anext(self._messages, None)
        finally:
            self.reading = False
        self.since = time.monotonic()
        self.complete += 1
        self.bytes = self.told[1] if self.told[0] == self.complete else 0
        if message is not None:
            self.asked.append(len(message))
        return message


class Streams:
    """A gRPC server on `socket` that forwards to Triton."""

    def __init__(
        self,
        triton: Triton,
        socket: Path,
        limits: Limits,
        keys: Keys | None,
        answer_single: AnswerSingle,
    ) -> None:
        self._triton = triton
        self._plainly = triton.channel.stream_stream(SERVICE + METHOD)
        self._ask_single = triton.channel.unary_unary(
            SERVICE + SINGLE, response_deserializer=pb.ModelInferResponse.FromString
        )
        self._keys = keys
        self._stopping = False
        self._most = limits.in_flight
        self._open: dict[asyncio.Task[None], Admitted] = {}
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.message_bytes),
                ("grpc.max_send_message_length", -1),
            ],
        )
        handlers = {
            METHOD: grpc.stream_stream_rpc_method_handler(self._answer),
            SINGLE: grpc.unary_unary_rpc_method_handler(answer_single),
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE.strip("/"), handlers),)
        )
        self._server.add_insecure_port(f"unix:{socket}")

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop(grace=0)

    async def drain(self, grace_s: float = DRAIN_S) -> None:
        """Ends all, and those that begin later."""
        self._stopping = True
        if ending := self._stop(self._open, grace_s):
            await asyncio.wait(ending)

    async def leave(self, request: Request, named: Mapping[str, str]) -> Answer:
        """A balancer stops: ends the streams that came through it."""
        through = [task for task in self._open if self._open[task].balancer == named["balancer"]]
        self._stop(through, DRAIN_S)
        return Answer()

    def _stop(
        self, tasks: Iterable[asyncio.Task[None]], grace_s: float
    ) -> list[asyncio.Task[None]]:
        """Ends each once what it has taken is answered, and what is left after `grace_s`."""
        stopping = [*tasks]
        for task in stopping:
            self._open[task].stop()
        loop = asyncio.get_running_loop()
        loop.call_later(grace_s, self._end, stopping, Refused(503, STOPS))
        return stopping

    def are_open(self) -> bool:
        return bool(self._open)

    async def arriving(self, request: Request, named: Mapping[str, str]) -> Answer:
        """Told by Envoy, perhaps before the stream is here, or after its end."""
        for _ in range(LOOKS):
            for each in self._open.values():
                if each.number == named["stream"]:
                    each.arrive(int(named["message"]), int(named["bytes"]))
                    return Answer()
            await asyncio.sleep(LOOK_S)
        return Answer()

    def end_late(self) -> None:
        late = [task for task, admitted in self._open.items() if admitted.is_late()]
        self._end(late, Refused(408, TOO_SLOW))

    def is_full(self) -> bool:
        return self._find_excess() > 0

    def _find_excess(self) -> int:
        return sum(admitted.held for admitted in self._open.values()) - MOST_BYTES

    def end_some(self) -> None:
        """A tenth, or as many as make room: of the client first whose messages hold most, those
        that have sent none for longest, for one whose end does not come is held here all the same.
        """
        held: Counter[str] = Counter()
        for admitted in self._open.values():
            held[admitted.client] += admitted.held

        def rank(task: asyncio.Task[None]) -> tuple[int, float]:
            return -held[self._open[task].client], self._open[task].since

        some = sorted(self._open, key=rank)[: 1 + len(self._open) // 10]
        if (excess := self._find_excess()) > 0:
            freed = accumulate(self._open[task].held for task in some)
            enough = next((at for at, count in enumerate(freed, 1) if count >= excess), len(some))
            some = some[:enough]
        self._end(some, busy("its memory is full, and this stream has sent no message for long"))

    def _make_place(self, client: str) -> None:
        """For one more of this client, by the end of one of the client that has most: of the stream
        that has sent no message for longest."""
        there = {task: each for task, each in self._open.items() if not each.refused}
        if len(there) <= self._most:
            return
        count = Counter(each.client for each in there.values())
        largest, most = count.most_common(1)[0]
        refused = busy(f"{self._most} streams are open")
        if count[client] == most:
            raise refused
        own = [task for task in there if there[task].client == largest]
        self._end([min(own, key=lambda task: there[task].since)], refused)

    def _end(self, tasks: Iterable[asyncio.Task[None]], refused: Refused) -> None:
        for task in [*tasks]:
            if task in self._open:
                self._open[task].refused = refused
                task.cancel()

    async def _answer(
        self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        sent = dict(context.invocation_metadata() or ())
        admitted = Admitted(messages, self._triton, self._keys, sent)
        if self._stopping:
            admitted.stop()
        call = self._with_status if sent.get(WITH_STATUS) == "true" else self._plainly
        task = asyncio.current_task()
        assert task
        self._open[task] = admitted
        try:
            self._make_place(admitted.client)
            async for answer in call(aiter(admitted), timeout=context.time_remaining()):
                admitted.note_answer()
                await context.write(answer)
        except asyncio.CancelledError:
            if not admitted.refused:
                raise  # the client's
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        except Refused as refused:
            await context.abort(code_of(refused), str(refused))
        finally:
            del self._open[task]
        if admitted.refused:
            await context.abort(code_of(admitted.refused), str(admitted.refused))

    async def _with_status(
        self, messages: AsyncIterator[bytes], timeout: float | None
    ) -> AsyncIterator[bytes]:
        """Asks about each message by itself, for an error's status. Triton has such streams too,
        but before 2.68 the first errors of them end it (a use after free, in its pull request
        8708)."""
        async for message in messages:
            try:
                answer = await self._ask_single(message, timeout=timeout)
                answer.parameters[FINAL].bool_param = True
                yield pb.ModelStreamInferResponse(infer_response=answer).SerializeToString()
            except grpc.aio.AioRpcError as error:
                if OF_SEVERAL not in (error.details() or ""):
                    raise
                async for one in self._triton.ask_for_several(message, timeout):
                    yield one.SerializeToString()
