"""Loads into NVIDIA's server what was live besides the main pipeline: it has no keeper to do so.

    python -m bundle_serving.load_beside --http-port 8000 --admin-key-file FILE places_ensemble …

A failure affects no other pipeline. Over HTTP, for the image has no gRPC for Python: whoever shares
a thread of the server with a load waits for it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

from bundle_serving import guard, log_lines

# Until the main pipeline is loaded, and what one load takes at most.
START_S, LOAD_S = 600, 300
LOOK_S = 0.5


def wait_until_ready(server: str) -> bool:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{server}/v2/health/ready", timeout=LOAD_S):
                return True
        except (OSError, http.client.HTTPException):
            time.sleep(LOOK_S)
    return False


def load(server: str, model: str, key: str) -> str:
    """Why not; empty if it is loaded."""
    path = f"/v2/repository/models/{quote(model, safe='')}/load"
    asked = urllib.request.Request(server + path, b"{}", {guard.HEADER: key})
    try:
        with urllib.request.urlopen(asked, timeout=LOAD_S):
            return ""
    except urllib.error.HTTPError as refusal:
        said = refusal.read().decode(errors="replace")
        try:
            return str(json.loads(said)["error"])
        except (ValueError, KeyError):
            return said
    except (OSError, http.client.HTTPException) as fault:
        return str(fault)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--http-port", required=True)
    parser.add_argument("--admin-key-file", type=Path, required=True)
    parser.add_argument("models", nargs="+")
    options = parser.parse_args(argv)
    server, key = f"http://127.0.0.1:{options.http_port}", guard.read(options.admin_key_file)
    if not wait_until_ready(server):
        return 1
    for model in options.models:
        why = load(server, model, key)
        log_lines.log("start", f"could not load {model}: {why}" if why else f"loaded {model}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
