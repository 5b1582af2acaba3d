"""How many pictures a second, and what a million cost, beyond what was measured:
docs/measuring/scale.md.

    python -m benchmark.scale

A picture takes so many milliseconds of a core: decoding, the network, the door. A server answers
until its cores, the door's processes of one kind, its network card or its GPU are busy; many
servers answer as many times that. Prints the tables of docs/measuring/scale.md, and first how far
the model lies from what was measured.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bundle_door.settings import CORES_OF_ONE, MOST_PROCESSES

# Milliseconds of a core, on two shared cores of an AMD EPYC with AVX-512 and BF16. Of
# docs/measuring/benchmark.md: what the bare network answers a second, and what one picture at a
# time spends beside the network.
NETWORK = {"bf16": 2000 / 84.7, "int8": 2000 / 150}
SMALL, LARGE = "500x375, 100 kB", "8.5 megapixels, 1 MB"
PREPROCESSING, POSTPROCESSING, BETWEEN = 2.7, 0.8, 0.5
BESIDE = {SMALL: PREPROCESSING + POSTPROCESSING + BETWEEN}
# Of the large picture in bf16, 48.3 a second: all but the network.
BESIDE[LARGE] = 2000 / 48.3 - NETWORK["bf16"]
BYTES = {SMALL: 1e5, LARGE: 1e6}
# Of docs/door.md: Envoy, over gRPC; and the HTTP service, which took the rest of 2.4 and 4.3 ms
# over HTTP. Since then it came down, on another machine: 0.66 to 0.38 ms, and 1.97 to 1.15.
ENVOY = {SMALL: 0.9, LARGE: 1.8}
SERVICE = {SMALL: (2.4 - 0.9) * 0.38 / 0.66, LARGE: (4.3 - 1.8) * 1.15 / 1.97}
DOOR = {"HTTP": {size: ENVOY[size] + SERVICE[size] for size in BYTES}, "gRPC": ENVOY}
BUSIEST = {"HTTP": {size: max(ENVOY[size], SERVICE[size]) for size in BYTES}, "gRPC": ENVOY}


@dataclass(frozen=True)
class Point:
    """Measured, but not what the model was made of."""

    what: str
    measured: float
    modelled: float


@dataclass(frozen=True)
class Server:
    cores: int
    gpu: float = 0  # what its network answers a second; 0 without one
    network_gbits: float = 10
    # Whether it decodes as well; how fast a GPU does that, is not in here.
    dali: bool = False

    @property
    def processes(self) -> int:
        """Of the HTTP service; and threads of Envoy."""
        return max(1, min(self.cores // CORES_OF_ONE, MOST_PROCESSES))

    def limits(self, precision: str, size: str, protocol: str) -> dict[str, float]:
        """Pictures a second until each is busy."""
        beside = POSTPROCESSING + BETWEEN if self.dali else BESIDE[size]
        network = 0 if self.gpu else NETWORK[precision]
        work = network + beside + DOOR[protocol][size]
        return {
            "its network card": self.network_gbits * 1e9 / 8 / BYTES[size],
            "the door's processes": 1000 * self.processes / BUSIEST[protocol][size],
            "its cores": 1000 * self.cores / work,
            **({"its GPU": self.gpu} if self.gpu else {}),
        }

    def answers(self, precision: str, size: str, protocol: str) -> tuple[float, str]:
        limits = self.limits(precision, size, protocol)
        ends = min(limits, key=lambda each: limits[each])
        return limits[ends], ends


def points() -> list[Point]:
    """Both measured before the door existed, so without it."""

    def rate(precision: str, size: str) -> float:
        return 2000 / (NETWORK[precision] + BESIDE[size])

    return [
        Point("bf16, 500x375, 4 at a time", 75.9, rate("bf16", SMALL)),
        Point("the same on another day", 78.1, rate("bf16", SMALL)),
        Point("int8, 500x375, 4 at a time", 112.5, rate("int8", SMALL)),
        Point("the same on another day", 117.3, rate("int8", SMALL)),
        Point("int8, 8.5 megapixels, 4 at a time", 66.1, rate("int8", LARGE)),
        Point("the same on another day", 64.5, rate("int8", LARGE)),
        # Of docs/measuring/tuning.md, with the client on the same cores: processor time against
        # throughput.
        Point("mobilenet_v2 in fp32, 500x375, 18.5 ms", 95.4, 2000 / 18.5),
        Point("mobilenet_v2 in fp32, 8.5 megapixels, 36.6 ms", 45.0, 2000 / 36.6),
    ]


# A GPU was not measured: a quarter of its dense peak in fp16, over the 8.2 GFLOP of a ResNet50.
SHARE_OF_PEAK, GFLOP = 0.25, 8.2
PEAK_TFLOPS = {"T4": 65, "L4": 121, "H100": 990}


# Round figures for an hour, in any currency: put in yours.
PRICE_CORE = 0.04
PRICE_GPU = {"T4": 0.35, "L4": 0.7, "H100": 4}


def of_gpu(name: str) -> float:
    return SHARE_OF_PEAK * PEAK_TFLOPS[name] * 1000 / GFLOP


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def agreement() -> str:
    head = ("point", "measured", "model", "off by")
    rows = [
        (each.what, f"{each.measured:.1f}", f"{each.modelled:.1f}", f"{_relative_error(each):+.0%}")
        for each in points()
    ]
    return table(head, rows)


def _relative_error(point: Point) -> float:
    return point.modelled / point.measured - 1


def servers() -> str:
    """Of each kind one, and what limits it."""
    head = ("server", "picture", "HTTP, a second", "limited by", "gRPC, a second", "limited by")
    kinds = {f"{cores} cores, bf16": Server(cores) for cores in (2, 8, 16, 32)}
    kinds |= {
        f"16 cores and one {name}": Server(16, of_gpu(name), network_gbits=25)
        for name in PEAK_TFLOPS
    }
    fast = of_gpu("H100")
    kinds["32 cores and one H100"] = Server(32, fast, network_gbits=25)
    kinds["16 cores and one H100, DALI"] = Server(16, fast, network_gbits=25, dali=True)
    rows = []
    for kind, server in kinds.items():
        for size in BYTES:
            (http, its), (grpc, theirs) = (
                server.answers("bf16", size, protocol) for protocol in ("HTTP", "gRPC")
            )
            rows.append((kind, size, f"{http:,.0f}", its, f"{grpc:,.0f}", theirs))
    return table(head, rows)


def million() -> str:
    """What a million pictures take of a server that is always busy, over gRPC."""
    head = ("server", "picture", "core hours", "GPU hours", "price")
    kinds = {f"8 cores, {precision}": (precision, "") for precision in NETWORK}
    kinds |= {f"16 cores and one {name}": ("bf16", name) for name in PEAK_TFLOPS}
    rows = []
    for kind, (precision, gpu) in kinds.items():
        server = Server(16, of_gpu(gpu), network_gbits=25) if gpu else Server(8)
        for size in BYTES:
            hours = 1e6 / server.answers(precision, size, "gRPC")[0] / 3600
            price = hours * (server.cores * PRICE_CORE + PRICE_GPU.get(gpu, 0))
            of_gpus = f"{hours:.2f}" if gpu else ""
            rows.append((kind, size, f"{hours * server.cores:.1f}", of_gpus, f"{price:.2f}"))
    return table(head, rows)


# Of a fleet.
MODEL_MB = 105  # ResNet50 with its repository
RECORD_BYTES = 16  # an address in an answer of DNS
CHECK_EVERY_S = 10
START_S = 30  # from a pod's creation to its first answer, image and models at hand


def fleet(sizes: Sequence[int] = (10, 100, 1000)) -> str:
    head = ("", *(f"{size:,} servers" for size in sizes))
    picture = 2000 / 75.9

    def checks(doors: int, cost_ms: float) -> float:
        """Of a server's two cores, what so many doors take by asking it."""
        return doors / CHECK_EVERY_S * cost_ms / 2000

    rows: dict[str, Callable[[int], str]] = {
        "pictures a second (2 cores each, bf16, 500x375, gRPC)": lambda n: (
            f"{n * Server(2).answers('bf16', SMALL, 'gRPC')[0]:,.0f}"
        ),
        "from S3 when all start": lambda n: f"{n * MODEL_MB / 1000:,.1f} GB",
        "the same over 10 Gbit/s": lambda n: f"{n * MODEL_MB * 8 / 10_000:,.0f} s",
        "DNS answer with all addresses": lambda n: f"{n * RECORD_BYTES / 1000:,.1f} kB",
        "health checks, every door asks every server": lambda n: f"{n * n / CHECK_EVERY_S:,.0f}/s",
        "each server's share for them, a real picture": lambda n: f"{checks(n, picture):.0%}",
        "the same, readiness alone (1 ms)": lambda n: f"{checks(n, 1):.1%}",
        "restart one by one": lambda n: _time(n * START_S),
        "restart a tenth at a time": lambda n: _time(10 * START_S),
    }
    return table(head, [(what, *map(of, sizes)) for what, of in rows.items()])


def in_flight(cores: int, busy: float) -> float:
    """Requests in work or waiting, on average, that come at random and take a core for as long as
    each other: half of what waits where they take as long as it happens (Erlang's C)."""
    offered = cores * busy
    terms = [offered**number / math.factorial(number) for number in range(cores)]
    last = offered**cores / math.factorial(cores) / (1 - busy)
    waits = last / (sum(terms) + last)
    return offered + waits * busy / (1 - busy) / 2


def load(shares: Sequence[float] = (0.5, 2 / 3, 0.8, 0.9, 0.95)) -> str:
    head = ("requests in flight", *(f"{share:.0%} busy" for share in shares))
    rows = [
        (f"{cores} cores", *(f"{in_flight(cores, share):.1f}" for share in shares))
        for cores in (2, 4, 8, 16)
    ]
    return table(head, rows)


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def main() -> int:
    print("\n\n".join((agreement(), servers(), million(), load(), fleet())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
