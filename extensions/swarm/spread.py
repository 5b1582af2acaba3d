"""How the servers of a swarm lie on its nodes, and what is wrong with that."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    id: str
    name: str
    # As the manager says: ready, down, …
    state: str
    # Whether it may get anything new.
    active: bool
    # Bytes.
    memory: int = 0

    @property
    def takes(self) -> bool:
        return self.state == "ready" and self.active


def to_move(counts: Mapping[str, int]) -> int:
    """How many servers lie where others should. Swarm puts each new one where there are fewest, and
    stops those of the fullest node first; so many more, and then so many fewer, spread them."""
    if not counts:
        return 0
    fewest, more = divmod(sum(counts.values()), len(counts))
    too_many = sum(max(0, count - fewest - bool(more)) for count in counts.values())
    too_few = sum(max(0, fewest - count) for count in counts.values())
    return max(too_many, too_few)


def problems(
    nodes: Sequence[Node], servers: Sequence[str], balancers: Sequence[str], replicas: int
) -> Iterator[str]:
    """`servers` and `balancers`: the node of each that runs."""
    for node in nodes:
        if node.state != "ready":
            yield f"{node.name} is {node.state}: clients get no answer there"
        elif node.active and node.name not in balancers:
            yield f"no balancer runs on {node.name}: clients get no answer there"
    if len(servers) < replicas:
        yield f"{len(servers)} of {replicas} servers run"
    counts = {node.name: servers.count(node.name) for node in nodes if node.takes}
    if len(servers) >= replicas and to_move(counts):
        lie = ", ".join(f"{count} on {name}" for name, count in counts.items())
        yield f"servers lie unevenly, {lie}: make scale REPLICAS={replicas} spreads them"
