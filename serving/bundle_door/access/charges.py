"""What a batch over gRPC costs of its key's rate. Envoy lets it in as one request, before it is
read; its other rows are charged later."""

from __future__ import annotations

from bundle_door.access.keys import Keys
from bundle_door.front.envoy_lines import Line
from bundle_door.front.methods import INFER
from bundle_door.served import Served
from bundle_serving.protocol.kserve import pb


class Charges:
    def __init__(self, keys: Keys, served: Served) -> None:
        self._keys, self._served = keys, served

    def of_line(self, line: Line) -> None:
        """Of a request that was answered."""
        if line.path == INFER and line.client and line.grpc_status == "OK":
            self._charge(line.client, line.model or "", int(line.rows or 1))

    def of_message(self, authorization: str, message: bytes) -> None:
        """Of a stream."""
        if client := self._keys.find_limited(authorization):
            asked = pb.ModelInferRequest.FromString(message)
            shape = asked.inputs[0].shape if asked.inputs else []
            self._charge(client, asked.model_name, shape[0] if shape else 1)

    def _charge(self, client: str, model: str, rows: int) -> None:
        if rows > 1 and self._served.has_batches(model):
            self._keys.charge(client, rows - 1)
