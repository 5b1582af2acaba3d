"""Is the pipeline answering? Exit 0 when a real inference goes through, 1 with the reason if not.

    python -m bundle_serving.health [--address 127.0.0.1:8000] [--model NAME] [--proof FOLDER]

Triton's own readiness stays green over a dead python stub, so nothing less than an answer counts.
With proofs, a container's server is healthy only once all of its pipelines have answered the
requests in them as they must (golden.py); one that answers them otherwise is ended.
"""

import argparse
import base64
import http.client
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bundle_serving import CACHE, own_requests
from bundle_serving.address import Address, read_refusal
from bundle_serving.process import guard
from bundle_serving.process.exposure import of_environment
from bundle_serving.process.gpu import why_lost
from bundle_serving.process.main_pipeline import find_main

# A white pixel as PNG, which every preprocessing reads.
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55000000"
    "0a4944415478da63f80f00010101001cb08c990000000049454e44ae426082"
)
TEXT = b"Are you there?"
BLACK_PIXEL = bytes(3 * 4)  # as an array of floats
# A parameter of a config: a request that the pipeline answers (bundle_serving/infer.py packs it).
EXAMPLE = "example"
# Another one: what it is asked with, where its tensors do not tell.
TAKES, SOUNDS, ROWS = "takes", "sounds", "rows"
IMAGE = "image"  # BYTES of this name are a picture's
LENGTH = "Inference-Header-Content-Length"
# No earlier answer will do.
COMPUTED = {"Cache-Control": "no-cache"}
# In a container, as long as it lives: which pipelines have.
PROVED = Path("/run/triton/proved")


def reason_not_to_trust(at: Address | str, model: str, timeout: float = 5) -> str | None:
    """None when the model answered a question of its kind; else why not, in one line."""
    server = Address.parse(at) if isinstance(at, str) else at
    try:
        return ask_example(server, model, timeout)
    except urllib.error.HTTPError as refusal:
        return read_refusal(refusal.code, refusal.read())
    except (OSError, ValueError, KeyError, http.client.HTTPException) as fault:
        return str(getattr(fault, "reason", fault)) or type(fault).__name__


def own(address: Address, admin_key: Path | None) -> Address:
    """As the environment says that this machine's door is opened, which takes the admin key for an
    API key, and counts no request of whoever has it."""
    exposure = of_environment()
    known = replace(address, certificate=exposure.certificate)
    if not admin_key:
        return known
    key = guard.read(admin_key)
    return replace(known, api_key=key if exposure.api_keys else "", own_id=own_requests.id_of(key))


def ask_example(server: Address, model: str, timeout: float) -> str | None:
    """What the pipeline itself has against it. Raises an OSError where nobody answers."""
    headers = COMPUTED | server.uncounted_headers
    model_url = f"{server.url}/v2/models/{model}"
    with server.open(urllib.request.Request(f"{model_url}/config", headers=headers), timeout) as it:
        body, length = find_example(json.load(it))
    headers[LENGTH] = str(length)
    with server.open(urllib.request.Request(f"{model_url}/infer", body, headers), timeout) as it:
        return _refusal(it.read(), int(it.headers.get(LENGTH, 0)))


def find_example(config: Mapping[str, Any]) -> tuple[bytes, int]:
    """A request's body that a pipeline can answer, and the length of its JSON, which is one line:
    the example that its config has, or else by the type of its input."""
    if example := config.get("parameters", {}).get(EXAMPLE):
        body = base64.b64decode(example["string_value"])
        return body, body.index(b"\n") + 1
    wanted = config["input"][0]
    shape = [1] * (len(wanted["dims"]) + (config.get("max_batch_size", 0) > 0))
    if wanted["data_type"] == "TYPE_STRING":
        text = PICTURE if wanted["name"] == IMAGE else TEXT
        datatype, content = "BYTES", len(text).to_bytes(4, "little") + text
    elif wanted["data_type"] == "TYPE_UINT8":
        datatype, content, shape[-1] = "UINT8", PICTURE, len(PICTURE)
    else:
        datatype, content, shape[-1] = "FP32", BLACK_PIXEL, 3
    tensor = {"name": wanted["name"], "datatype": datatype, "shape": shape}
    tensor |= {"parameters": {"binary_data_size": len(content)}}
    parameters = {"binary_data_output": True, CACHE: False}
    head = json.dumps({"inputs": [tensor], "parameters": parameters}).encode() + b"\n"
    return head + content, len(head)


def _refusal(body: bytes, header: int) -> str | None:
    """What stands in the output `error`, by which the callable refuses one picture of a batch."""
    tensors = json.loads(body[:header])["outputs"] if header else []
    for tensor in tensors:
        size = tensor["parameters"]["binary_data_size"]
        if tensor["name"] == "error":
            return body[header + 4 : header + size].decode() or None  # 4 bytes say how long it is
        header += size
    return None


def not_proved(at: Address, folder: Path) -> str | None:
    """Asks each pipeline once; a note says later that it did."""
    PROVED.mkdir(exist_ok=True)
    for file in sorted(folder.glob("*.npz")):  # a mounted ConfigMap has more
        noted = PROVED / file.stem
        if not noted.exists():
            if reason := _refute(at, file.stem, file):
                return f"{file.stem}: {reason}"
            noted.touch()
    return None


def _refute(at: Address, model: str, file: Path) -> str | None:
    from bundle_serving.protocol import golden  # with numpy, which no other check needs

    if reason := reason_not_to_trust(at, model):
        return reason
    try:
        reason = golden.refute(at, model, file)
    except (OSError, ValueError, KeyError, http.client.HTTPException) as fault:
        return str(fault) or type(fault).__name__
    if reason:
        # What is said here, `docker inspect` alone shows.
        with suppress(OSError), Path("/proc/1/fd/2").open("a") as log:
            log.write(f"error: the server is ended: {reason}\n")
        os.kill(1, signal.SIGTERM)
    return reason


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="127.0.0.1:8000", type=Address.parse)
    parser.add_argument("--model", default=find_main())
    parser.add_argument("--admin-key-file", type=Path, help="sent to the door as an API key")
    parser.add_argument("--proof", type=Path, help="requests, and what is to be answered")
    options = parser.parse_args(argv)
    address = own(options.address, options.admin_key_file)
    reason = reason_not_to_trust(address, options.model)
    if not reason and options.proof:
        reason = not_proved(address, options.proof)
    if reason:
        reason = why_lost() or reason
        print(f"{options.model} does not answer: {reason}", file=sys.stderr)
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
