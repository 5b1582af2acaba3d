"""Questions about what a picture is like, and their answers, as they travel."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import ClientError, PictureRefused, ServerFault, ServerUnreachable
from .wire import as_text, not_understood

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL = "embedding"

AFRESH = "it restarts by itself: ask again in a few seconds"


def nothing() -> "NDArray[np.float32]":
    import numpy as np

    return np.empty(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """A picture as a vector of length 1, or the error that came instead. The scalar product of two
    says how alike they are, where both are of one `network`."""

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
    """Raises `PictureRefused` where the service says so: it answers the other pictures of a batch,
    and so marks the one."""
    vectors, errors, networks = map(answer.as_numpy, ("embedding", "error", "network"))
    if vectors is None or errors is None or networks is None or not len(vectors) == 1:
        raise not_understood("no vector for the picture")
    if refusal := as_text(errors.item()):
        cause, _, remedy = refusal.partition("; ")
        raise PictureRefused(cause, remedy or "try another picture")
    return Embedding(source, vectors[0], as_text(networks.item()), ms)


@contextmanager
def of_the_service() -> Iterator[None]:
    """What helps where the service does not answer, which is no server of `make up`."""
    try:
        yield
    except ServerUnreachable as exc:
        remedy = f"start the service (`make similar`); or, where it has just ended, {AFRESH}"
        raise ServerUnreachable(exc.cause, remedy) from exc
    except ServerFault as exc:
        raise ServerFault(exc.cause, f"where the service has ended, {AFRESH}") from exc
