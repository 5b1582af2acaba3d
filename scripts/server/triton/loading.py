"""Loads and unloads models in the running server, with the admin key.

Over gRPC: over HTTP, a load blocks one of the server's few threads and all of its connections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bundle_serving.address import Address
from bundle_serving.process.guard import GRPC_HEADER
from scripts.base import lock
from scripts.base.errors import UserError
from scripts.stacks import admin_key

if TYPE_CHECKING:
    from tritonclient.utils import InferenceServerException

# The door's message.
REFUSED = "the admin key"
# Where the places begin at which a Python model was; the log has them too.
OF_A_TRACEBACK = " At: "


def load(
    address: Address | str,
    model: str,
    limit: float,
    config: str | None = None,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Loads a model from the repository; or with this config and, for a model that is not in the
    repository, with these files. Neither outlives the server."""
    with lock.hands_off(), _ask(address, f"the load of {model}", limit) as (client, key):
        named = {f"file:{name}": content for name, content in (files or {}).items()}
        client.load_model(model, headers=key, config=config, files=named, client_timeout=limit)


def unload(address: Address | str, model: str, limit: float) -> None:
    with lock.hands_off(), _ask(address, f"the unload of {model}", limit) as (client, key):
        client.unload_model(model, headers=key, client_timeout=limit)


def in_state(state: str, address: Address | str, limit: float) -> set[str]:
    """The models in this state: READY, LOADING, …"""
    with _ask(address, "what it loads", limit) as (client, key):
        index = client.get_model_repository_index(headers=key, client_timeout=limit)
    return {model.name for model in index.models if model.state == state}


@contextmanager
def _ask(address: Address | str, what: str, limit: float) -> Iterator[tuple[Any, dict[str, str]]]:
    # A fifth of a second to import, and a server that starts often has nothing more to load.
    from tritonclient.utils import InferenceServerException

    from scripts.server.triton import triton_grpc

    client = triton_grpc.client(address)
    try:
        yield client, {GRPC_HEADER: admin_key.load(), **triton_grpc.headers(address)}
    except InferenceServerException as fault:
        raise _refusal(address, what, limit, fault) from None
    finally:
        client.close()


def _refusal(
    address: Address | str, what: str, limit: float, fault: InferenceServerException
) -> UserError:
    whole = " ".join(str(fault.message()).split())
    message = whole.partition(OF_A_TRACEBACK)[0][:400].rstrip("; ")
    if REFUSED in message:
        return UserError(
            f"{address} rejects the key in {admin_key.SHOWN}",
            "make up restarts it with this key",
        )
    if fault.status() == "StatusCode.DEADLINE_EXCEEDED":
        return UserError(
            f"{address} does not answer {what} within {limit:g} s",
            "if this persists: make down && make up",
        )
    if fault.status() == "StatusCode.UNAVAILABLE":
        message = f"{address} does not answer {what}: {message}"
    return UserError(message, "see make logs")
