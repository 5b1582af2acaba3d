"""A running Triton over gRPC: by its socket, or through the door."""

from typing import Any

import tritonclient.grpc

from bundle_serving.address import Address
from scripts.stacks import exposure

# A model's files go with a load.
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class _Client(tritonclient.grpc.InferenceServerClient):  # type: ignore[misc]
    def __del__(self) -> None:
        """Callers close it; the inherited one complains if Ctrl-C interrupted the constructor."""


def client(address: Address | str) -> Any:
    if isinstance(address, str) or address.certificate is None:
        return _Client(str(address), channel_args=OPTIONS)
    name = ("grpc.ssl_target_name_override", exposure.name_in(address.certificate))
    return _Client(
        str(address),
        ssl=True,
        root_certificates=str(address.certificate),
        channel_args=[*OPTIONS, name],
    )


def headers(address: Address | str) -> dict[str, str]:
    return address.headers if isinstance(address, Address) else {}
