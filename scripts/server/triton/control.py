"""Loads and unloads models in the running server, with the admin key.

Over gRPC: over HTTP, a load blocks one of the server's few threads and all of its connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from bundle_serving.address import Address
from bundle_serving.process.cores import UNSEEN
from bundle_serving.process.guard import GRPC_HEADER
from bundle_serving.protocol.kserve import ModelConfig
from scripts.base import interrupts, lock
from scripts.base.errors import UserError
from scripts.server.triton import triton_api
from scripts.stacks import admin_key, exposure, state

if TYPE_CHECKING:
    from tritonclient.utils import InferenceServerException

# The door's message.
REFUSED = "the admin key"
# Where the places begin at which a Python model was; the log has them too.
OF_A_TRACEBACK = " At: "
# A model's files go with a load.
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@dataclass(frozen=True)
class Control:
    address: Address | str  # gRPC
    limit: float  # seconds per call

    def load(
        self,
        model: str,
        config: ModelConfig | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Loads a model from the repository; or with this config and, for a model that is not in
        the repository, with these files. Neither outlives the server."""
        named = {f"file:{name}": content for name, content in (files or {}).items()}
        text = config and json_format.MessageToJson(config, preserving_proto_field_name=True)
        # The server would continue, and removing files meanwhile would hang it.
        held = interrupts.defer_interrupts("the server has finished this load")
        with (
            held if config else nullcontext(),
            lock.hands_off(),
            self._ask(f"the load of {model}") as (client, key),
        ):
            client.load_model(
                model, headers=key, config=text, files=named, client_timeout=self.limit
            )

    def unload(self, model: str) -> None:
        with lock.hands_off(), self._ask(f"the unload of {model}") as (client, key):
            client.unload_model(model, headers=key, client_timeout=self.limit)

    def wait_for(self, models: Iterable[str]) -> None:
        """Waits for loads whose command is gone."""
        deadline = time.monotonic() + self.limit
        while at_work := self._names_in("LOADING") & set(models):
            if time.monotonic() > deadline:
                raise UserError(
                    f"{', '.join(sorted(at_work))} did not load within {self.limit:g} s",
                    f"restart it: make down && {state.name_start()}",
                )
            time.sleep(0.1)

    def in_use(self, ensemble: ModelConfig, models: Iterable[str]) -> list[str]:
        """Of a version's models, those that the ensemble needs or something else has loaded: the
        rest is only laid out, and takes no memory."""
        wanted = {step.model_name for step in ensemble.ensemble_scheduling.step} | self._names_in(
            "READY"
        )
        return [model for model in models if model in wanted]

    def _names_in(self, state: str) -> set[str]:
        with self._ask("what it loads") as (client, key):
            index = client.get_model_repository_index(headers=key, client_timeout=self.limit)
        return {model.name for model in index.models if model.state == state}

    @contextmanager
    def _ask(self, what: str) -> Iterator[tuple[Any, dict[str, str]]]:
        # A fifth of a second to import, and a server that starts often has nothing more to load.
        from tritonclient.utils import InferenceServerException

        client = _connect(self.address)
        try:
            of_it = self.address.headers if isinstance(self.address, Address) else {}
            yield client, {GRPC_HEADER: admin_key.load(), **of_it}
        except InferenceServerException as fault:
            raise self._refusal(what, fault) from None
        finally:
            client.close()

    def _refusal(self, what: str, fault: InferenceServerException) -> UserError:
        whole = " ".join(str(fault.message()).split())
        message = whole.partition(OF_A_TRACEBACK)[0][:400].rstrip("; ")
        if REFUSED in message:
            return triton_api.refuse_key(self.address)
        if fault.status() == "StatusCode.DEADLINE_EXCEEDED":
            return UserError(
                f"{self.address} does not answer {what} within {self.limit:g} s",
                triton_api.remedy_of_silence(),
            )
        if fault.status() == "StatusCode.UNAVAILABLE":
            message = f"{self.address} does not answer {what}: {message}"
        return UserError(message, "see make logs")


def _connect(address: Address | str) -> Any:
    """By its socket, or through the door."""
    from tritonclient.grpc import InferenceServerClient

    class Client(InferenceServerClient):  # type: ignore[misc]
        def __del__(self) -> None:
            """Callers close it; the inherited one complains if Ctrl-C interrupted the
            constructor."""

    if isinstance(address, str) or address.certificate is None:
        return Client(str(address), channel_args=OPTIONS)
    name = ("grpc.ssl_target_name_override", exposure.name_in(address.certificate))
    return Client(
        str(address),
        ssl=True,
        root_certificates=str(address.certificate),
        channel_args=[*OPTIONS, name],
    )


def pin_steps(ensemble: ModelConfig, models: Mapping[str, int]) -> ModelConfig:
    """The ensemble with each of these steps pinned to one version."""
    config = deepcopy(ensemble)
    for step in config.ensemble_scheduling.step:
        step.model_version = models.get(step.model_name, step.model_version)
    return config


def serving_both(member: ModelConfig, *versions: int, unseen: int | None = None) -> ModelConfig:
    config = deepcopy(member)
    config.version_policy.specific.versions[:] = versions
    if unseen:
        config.parameters[UNSEEN].string_value = str(unseen)
    return config
