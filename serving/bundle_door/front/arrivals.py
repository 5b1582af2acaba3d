"""How messages over gRPC may arrive in Envoy, whose memory they are in until they are complete: the
numbers of arrivals.lua. For bodies over HTTP, limits.py does the same."""

import math
from pathlib import Path

from bundle_door.front.lua import write_program
from bundle_door.limits import AHEAD_S, BEGIN_S, LATE_S, SLOWEST
from bundle_door.requests import CLIENT_HEADER

# Of Envoy's own memory; and how much of it all messages may take. From the larger share on it ends
# those by itself that hold most, whoever sends them.
HEAP_BYTES, ROOM, FULL = 512 << 20, 0.65, 0.7
# Larger ones are not kept until they are answered, so not sent again if Triton ends meanwhile.
KEPT_BYTES = 16 << 20
# A client may hold so many times as much as it leaves to all others: five messages of 64 MB, if it
# is alone. If it holds more than it leaves, its messages may make pauses of so many seconds.
MOST_TIMES, PAUSE_S = 16, 3

# Where the script notes how far a message is.
STAGES = "bundle.arrivals"
# By which it numbers streams, and where it tells of their messages: stream, message, bytes.
NUMBER, TOLD = "bundle-stream", "/internal/arriving/"


def clear_room(threads: int, shared: Path) -> None:
    """Before Envoy starts, of which each thread has a Lua of its own: in this file they tell each
    other what their messages take."""
    shared.write_bytes(bytes(2 * 8 * threads))


def program(
    at_door: bool, has_keys: bool = False, threads: int = 1, shared: Path | None = None
) -> str:
    """For Envoy's Lua. By key, where there are keys; else by address. A balancer sends a message on
    as it comes, but holds the first part of it, and a copy of that, until it is answered."""
    values = {
        "ROOM": int(ROOM * HEAP_BYTES),
        "KEPT": KEPT_BYTES if at_door else math.inf,
        "COPIES": 1 if at_door else 2,
        "MOST_OF_ONE": math.inf if at_door else 2 * KEPT_BYTES,
        "GATHERS": at_door,
        "MOST_TIMES": MOST_TIMES,
        "SLOWEST": SLOWEST,
        "BEGIN_MS": int(BEGIN_S * 1000),
        "AHEAD_MS": int(AHEAD_S * 1000),
        "LATE_MS": int(LATE_S * 1000),
        "STAGES": STAGES,
        "CLIENT": CLIENT_HEADER if has_keys else None,
        "NUMBER": NUMBER,
        "TOLD": TOLD,
        "THREADS": threads,
        "SHARED": str(shared) if shared else None,
    }
    return write_program("arrivals.lua", values)
