"""KServe's protocol over HTTP with Triton's extensions: each request becomes a gRPC call."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import asdict

from bundle_door.access.keys import Charged, charge_once
from bundle_door.answers import Answer, Refused, as_json
from bundle_door.requests import Request
from bundle_door.triton import Triton
from bundle_door.watching.steps import TIMINGS, Steps, read_timeline
from bundle_door.wire import kserve
from bundle_door.wire.inference import from_body, from_raw, header_length
from bundle_door.wire.kserve import parse
from bundle_door.wire.over_http import make_answer, plain
from bundle_serving.protocol.gists import HEADER_LENGTH
from bundle_serving.protocol.kserve import pb

Named = Mapping[str, str]


@dataclass
class Api:
    """The handlers; `named` has the parts of the path: model, version, region."""

    triton: Triton
    steps: Steps
    own_id: str = ""  # of our own requests
    keys: Charged | None = None

    # Inference

    async def infer(self, request: Request, named: Named) -> Answer:
        """With `timings=1`, Server-Timing tells of its steps; our own requests have none."""
        if request.is_own or request.query.get(TIMINGS) != "1":
            return await self._infer(request, named, self.own_id if request.is_own else "")
        with self.steps.following() as followed:
            answer = await self._infer(request, named, followed.id)
            timeline = await read_timeline(request, followed)
        return replace(answer, headers={**answer.headers, **timeline.header()})

    async def _infer(self, request: Request, named: Named, request_id: str) -> Answer:
        """`request_id`, if any, is nobody's to know, and in the place of the client's."""
        model, version, waits = named["model"], named["version"], not request.is_own
        length = header_length(request.headers.get(HEADER_LENGTH), request.size)
        may = request.may_be_repeated
        if length is None:
            signature = await self.triton.signature(model, version, waits=waits)
            asked = from_raw(model, version, request.chunks, signature, (), request_id, may)
        else:
            asked = from_body(model, version, request.body, length, may, request_id)
            if self.keys and asked.rows > 1:
                answer = await self.triton.describe("ModelConfig", model, version, waits)
                # As many as it takes at most; a batch of more is refused.
                rows = min(asked.rows, answer.config.max_batch_size)
                charge_once(self.keys, request.note, rows - 1)
        if asked.classified and not request.to:
            await self.triton.refuse_classes(model, version, asked.classified, waits)
        try:
            response = await self.triton.infer(model, asked, request.onwards, waits=waits)
        except Refused as refused:
            raise hide_id(refused, request_id, asked.id) from None
        if request_id:
            response.id = asked.id
        return make_answer(response, asked)

    async def classes(self, request: Request, named: Named) -> Answer:
        """Asked by Envoy (asked.lua), before Triton is."""
        model, version, outputs = (request.query[name] for name in ("model", "version", "outputs"))
        await self.triton.refuse_classes(model, version, outputs.split("\n"))
        return Answer()

    # Health

    async def model_ready(self, request: Request, named: Named) -> Answer:
        answer = await self.triton.ask("ModelReady", **model(named))
        if not answer.ready:
            raise Refused(400, "Model version not ready")
        return Answer()

    # Metadata

    async def server(self, request: Request, named: Named) -> Answer:
        return as_json(plain(await self.triton.ask("ServerMetadata")))

    async def model(self, request: Request, named: Named) -> Answer:
        return as_json(plain(await self._describe("ModelMetadata", request, named)))

    async def config(self, request: Request, named: Named) -> Answer:
        return as_json(plain((await self._describe("ModelConfig", request, named)).config))

    async def _describe(self, method: str, request: Request, named: Named) -> Any:
        waits = not request.is_own
        return await self.triton.describe(method, named["model"], named["version"], waits)

    async def statistics(self, request: Request, named: Named) -> Answer:
        return as_json(plain(await self.triton.ask("ModelStatistics", **model(named))))

    # The model repository

    async def index(self, request: Request, named: Named) -> Answer:
        wanted = self._json(request, kserve.Index)
        answer = await self.triton.ask("RepositoryIndex", ready=wanted.ready)
        told = map(plain, answer.models)
        # As Triton does, without what is empty.
        return as_json([{name: value for name, value in each.items() if value} for each in told])

    async def load(self, request: Request, named: Named) -> Answer:
        wanted = self._json(request, kserve.Load).parameters
        parameters = {name: load_parameter(name, value) for name, value in wanted.items()}
        await self.triton.ask(
            "RepositoryModelLoad", model_name=named["model"], parameters=parameters
        )
        return Answer()

    async def unload(self, request: Request, named: Named) -> Answer:
        wanted = self._json(request, kserve.Unload).parameters
        dependents = pb.ModelRepositoryParameter(bool_param=wanted.unload_dependents)
        await self.triton.ask(
            "RepositoryModelUnload",
            model_name=named["model"],
            parameters={"unload_dependents": dependents},
        )
        return Answer()

    # Shared memory

    async def regions(self, request: Request, named: Named) -> Answer:
        answer = await self._ask_memory("Status", named)
        return as_json([plain(answer.regions[name]) for name in sorted(answer.regions)])

    async def register(self, request: Request, named: Named) -> Answer:
        region = asdict(self._json(request, kserve.REGIONS[named["memory"]]))
        if "raw_handle" in region:
            region["raw_handle"] = region["raw_handle"].b64
        await self._ask_memory("Register", named, **region)
        return Answer()

    async def unregister(self, request: Request, named: Named) -> Answer:
        await self._ask_memory("Unregister", named)
        return Answer()

    async def _ask_memory(self, what: str, named: Named, **fields: Any) -> Any:
        method = f"{named['memory'].title()}SharedMemory{what}"
        return await self.triton.ask(method, name=named["region"], **fields)

    # Trace and log

    async def trace(self, request: Request, named: Named) -> Answer:
        wanted = self._changes(request, kserve.TraceSettings)
        settings = {name: trace_setting(value) for name, value in wanted.items()}
        answer = await self.triton.ask("TraceSetting", model_name=named["model"], settings=settings)
        return as_json(
            {name: read_trace(name, value.value) for name, value in answer.settings.items()}
        )

    async def logging(self, request: Request, named: Named) -> Answer:
        wanted = self._changes(request, kserve.LogSettings)
        settings = {name: log_setting(value) for name, value in wanted.items() if value is not None}
        answer = await self.triton.ask("LogSettings", settings=settings)
        return as_json({name: the_one(value) for name, value in answer.settings.items()})

    def _changes(self, request: Request, kind: Any) -> Any:
        """The changes requested; empty if settings are only read."""
        return {} if request.method == "GET" else self._json(request, kind)

    def _json(self, request: Request, kind: Any) -> Any:
        """The body's JSON; without a body, the defaults."""
        return parse(request.body or b"{}", kind)


def hide_id(refused: Refused, request_id: str, given: str) -> Refused:
    """Triton says it before the cause: as if it had been asked under the client's own, if any."""
    said = str(refused)
    if not request_id or request_id not in said:
        return refused
    told = said.replace(request_id, given or "<id_unknown>")
    return Refused(refused.status, told, refused.headers)


def model(named: Named) -> dict[str, str]:
    return {"name": named["model"], "version": named["version"]}


def load_parameter(name: str, value: str) -> Any:
    if not name.startswith("file:"):
        return pb.ModelRepositoryParameter(string_param=value)
    try:
        return pb.ModelRepositoryParameter(bytes_param=base64.b64decode(value, validate=True))
    except ValueError:
        raise Refused(400, f"the parameter '{name}' is not base64") from None


def trace_setting(value: str | list[str] | None) -> Any:
    values = [value] if isinstance(value, str) else value
    return pb.TraceSettingRequest.SettingValue(value=values)


def read_trace(name: str, values: Any) -> Any:
    return list(values) if name == "trace_level" else "".join(values)


def log_setting(value: bool | int | str) -> Any:
    name = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
    return pb.LogSettingsRequest.SettingValue(**{name: value})


def the_one(message: Any) -> Any:
    """The value of a message with a oneof field."""
    (value,) = plain(message).values()
    return value
