"""KServe's protocol over HTTP with Triton's extensions: each request as a call of Triton's gRPC."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from bundle_door import kserve
from bundle_door.answers import Answer, Refused, as_json
from bundle_door.inference import HEADER_LENGTH, answered, from_body, from_raw, header_length
from bundle_door.limits import Limits
from bundle_door.messages import plain
from bundle_door.parsing import parsed
from bundle_door.requests import Request
from bundle_door.triton import Triton

Named = Mapping[str, str]


class Api:
    """The handlers; `named` holds what the path names: model, version, region."""

    def __init__(self, triton: Triton, limits: Limits) -> None:
        self._triton = triton
        self._limits = limits

    # Inference

    async def infer(self, request: Request, named: Named) -> Answer:
        model, version = named["model"], named["version"]
        length = header_length(request.headers.get(HEADER_LENGTH), request.size)
        if length is None:
            signature = await self._triton.signature(model, version)
            asked = from_raw(model, version, request.chunks, signature)
        else:
            asked = from_body(model, version, request.body, length, self._limits)
        return answered(await self._triton.infer(asked.pieces), asked)

    # Health

    async def live(self, request: Request, named: Named) -> Answer:
        live = await self._triton.ask("ServerLive", pb.ServerLiveRequest(), pb.ServerLiveResponse)
        return Answer(status=200 if live.live else 503)

    async def ready(self, request: Request, named: Named) -> Answer:
        ready = await self._triton.ask(
            "ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse
        )
        return Answer(status=200 if ready.ready else 503)

    async def model_ready(self, request: Request, named: Named) -> Answer:
        asked = pb.ModelReadyRequest(name=named["model"], version=named["version"])
        ready = await self._triton.ask("ModelReady", asked, pb.ModelReadyResponse)
        if not ready.ready:
            raise Refused(400, "Model version not ready")
        return Answer()

    # Metadata

    async def server(self, request: Request, named: Named) -> Answer:
        answer = await self._triton.ask(
            "ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse
        )
        return as_json(plain(answer))

    async def model(self, request: Request, named: Named) -> Answer:
        asked = pb.ModelMetadataRequest(name=named["model"], version=named["version"])
        return as_json(
            plain(await self._triton.ask("ModelMetadata", asked, pb.ModelMetadataResponse))
        )

    async def config(self, request: Request, named: Named) -> Answer:
        return as_json(plain(await self._triton.config(named["model"], named["version"])))

    async def statistics(self, request: Request, named: Named) -> Answer:
        asked = pb.ModelStatisticsRequest(name=named["model"], version=named["version"])
        return as_json(
            plain(await self._triton.ask("ModelStatistics", asked, pb.ModelStatisticsResponse))
        )

    # The model repository

    async def index(self, request: Request, named: Named) -> Answer:
        wanted = self._json(request, kserve.Index)
        asked = pb.RepositoryIndexRequest(ready=wanted.ready)
        answer = await self._triton.ask("RepositoryIndex", asked, pb.RepositoryIndexResponse)
        # What is empty, Triton leaves out here.
        return as_json(
            [
                {key: value for key, value in plain(model).items() if value}
                for model in answer.models
            ]
        )

    async def load(self, request: Request, named: Named) -> Answer:
        asked = pb.RepositoryModelLoadRequest(model_name=named["model"])
        for name, value in self._json(request, kserve.Load).parameters.items():
            if name.startswith("file:"):
                asked.parameters[name].bytes_param = from_base64(value, name)
            else:
                asked.parameters[name].string_param = value
        await self._triton.ask("RepositoryModelLoad", asked, pb.RepositoryModelLoadResponse)
        return Answer()

    async def unload(self, request: Request, named: Named) -> Answer:
        wanted = self._json(request, kserve.Unload).parameters
        asked = pb.RepositoryModelUnloadRequest(model_name=named["model"])
        asked.parameters["unload_dependents"].bool_param = wanted.unload_dependents
        await self._triton.ask("RepositoryModelUnload", asked, pb.RepositoryModelUnloadResponse)
        return Answer()

    # Shared memory

    async def system_regions(self, request: Request, named: Named) -> Answer:
        asked = pb.SystemSharedMemoryStatusRequest(name=named["region"])
        answer = await self._triton.ask(
            "SystemSharedMemoryStatus", asked, pb.SystemSharedMemoryStatusResponse
        )
        return as_json([plain(answer.regions[name]) for name in sorted(answer.regions)])

    async def register_system(self, request: Request, named: Named) -> Answer:
        region = self._json(request, kserve.SystemRegion)
        asked = pb.SystemSharedMemoryRegisterRequest(
            name=named["region"], key=region.key, offset=region.offset, byte_size=region.byte_size
        )
        await self._triton.ask(
            "SystemSharedMemoryRegister", asked, pb.SystemSharedMemoryRegisterResponse
        )
        return Answer()

    async def unregister_system(self, request: Request, named: Named) -> Answer:
        asked = pb.SystemSharedMemoryUnregisterRequest(name=named["region"])
        await self._triton.ask(
            "SystemSharedMemoryUnregister", asked, pb.SystemSharedMemoryUnregisterResponse
        )
        return Answer()

    async def cuda_regions(self, request: Request, named: Named) -> Answer:
        asked = pb.CudaSharedMemoryStatusRequest(name=named["region"])
        answer = await self._triton.ask(
            "CudaSharedMemoryStatus", asked, pb.CudaSharedMemoryStatusResponse
        )
        return as_json([plain(answer.regions[name]) for name in sorted(answer.regions)])

    async def register_cuda(self, request: Request, named: Named) -> Answer:
        region = self._json(request, kserve.CudaRegion)
        asked = pb.CudaSharedMemoryRegisterRequest(
            name=named["region"],
            raw_handle=region.raw_handle.b64,
            byte_size=region.byte_size,
            device_id=region.device_id,
        )
        await self._triton.ask(
            "CudaSharedMemoryRegister", asked, pb.CudaSharedMemoryRegisterResponse
        )
        return Answer()

    async def unregister_cuda(self, request: Request, named: Named) -> Answer:
        asked = pb.CudaSharedMemoryUnregisterRequest(name=named["region"])
        await self._triton.ask(
            "CudaSharedMemoryUnregister", asked, pb.CudaSharedMemoryUnregisterResponse
        )
        return Answer()

    # Trace and log

    async def trace(self, request: Request, named: Named) -> Answer:
        asked = pb.TraceSettingRequest(model_name=named["model"])
        for name, value in self._settings(request, kserve.TraceSettings).items():
            values = [value] if isinstance(value, str) else value or []
            asked.settings[name].value.extend(values)
        answer = await self._triton.ask("TraceSetting", asked, pb.TraceSettingResponse)
        return as_json(
            {name: trace_value(name, each.value) for name, each in answer.settings.items()}
        )

    async def logging(self, request: Request, named: Named) -> Answer:
        asked = pb.LogSettingsRequest()
        for name, value in self._settings(request, kserve.LogSettings).items():
            if isinstance(value, bool):
                asked.settings[name].bool_param = value
            elif isinstance(value, int):
                asked.settings[name].uint32_param = value
            elif value is not None:
                asked.settings[name].string_param = value
        answer = await self._triton.ask("LogSettings", asked, pb.LogSettingsResponse)
        return as_json(
            {name: next(iter(plain(each).values())) for name, each in answer.settings.items()}
        )

    def _settings(self, request: Request, kind: Any) -> Any:
        """The settings to be changed: none where they are only read."""
        if request.method == "GET":
            return {}
        return self._json(request, kind)

    def _json(self, request: Request, kind: Any) -> Any:
        """The body's JSON; without a body, all that has a default."""
        if request.size > self._limits.json_bytes:
            raise Refused(413, f"the JSON is larger than {self._limits.json_bytes} bytes")
        return parsed(request.body or b"{}", kind, "the request's JSON")


def trace_value(name: str, values: Any) -> Any:
    return list(values) if name == "trace_level" else "".join(values)


def from_base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Refused(400, f"the parameter '{name}' is not base64") from None
