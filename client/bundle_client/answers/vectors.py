"""Requests for picture embeddings, and their answers, on the wire."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ClientError, PictureRefused, ServerFault, ServerUnreachable
from .wire import as_text, not_understood

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL = "embedding"

RESTARTS = "it restarts by itself; try again in a few seconds"


def nothing() -> "NDArray[np.float32]":
    import numpy as np

    return np.empty(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """A picture as a vector of length 1, or an error. The scalar product of two vectors says how
    similar their pictures are, if both are from the same `network`."""

    source: str
    vector: "NDArray[np.float32]" = field(default_factory=nothing)
    network: str = ""
    ms: float = 0.0
    error: ClientError | None = None


def question(tensors: Any, model: str, picture: bytes) -> dict[str, Any]:
    """The arguments of `infer`, for tritonclient.http as for tritonclient.grpc."""
    import numpy as np

    tensor = tensors.InferInput("image", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[picture]], np.object_))
    outputs = [tensors.InferRequestedOutput(name) for name in ("embedding", "error", "network")]
    return {"model_name": model, "inputs": [tensor], "outputs": outputs}


def embedding(source: str, answer: Any, ms: float) -> Embedding:
    """Raises `PictureRefused` if the service refused this picture: it marks it and answers the
    others of the batch."""
    vectors, errors, networks = map(answer.as_numpy, ("embedding", "error", "network"))
    if vectors is None or errors is None or networks is None or not len(vectors) == 1:
        raise not_understood("no vector for the picture")
    if refusal := as_text(errors.item()):
        cause, _, remedy = refusal.partition("; ")
        raise PictureRefused(cause, remedy or "try another picture")
    return Embedding(source, vectors[0], as_text(networks.item()), ms)


@contextmanager
def of_the_service() -> Iterator[None]:
    """The remedy if the service, which is separate from the server, does not answer."""
    try:
        yield
    except ServerUnreachable as exc:
        remedy = f"start the service (`make similar`); if it has just exited, {RESTARTS}"
        raise ServerUnreachable(exc.cause, remedy) from exc
    except ServerFault as exc:
        raise ServerFault(exc.cause, f"if the service has exited, {RESTARTS}") from exc
