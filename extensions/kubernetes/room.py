"""How many pods a cluster has room for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from extensions.kubernetes.kubectl import Kubectl, Object, Refused
from scripts.base.errors import UserError

# Where nobody says what the nodes have.
MOST = 100
BINARY, DECIMAL = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), ("k", "M", "G", "T", "P", "E")
UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1024) ** power for power, unit in enumerate(BINARY, 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(DECIMAL, 1)},
}


def require(kubectl: Kubectl, asked: Mapping[str, str], replicas: int, most: int | None) -> None:
    """`asked`: what each pod asks for; `most`: what the user says."""
    remedy = f"MAX_REPLICAS={replicas}, if it is meant"
    if most is None:
        try:
            nodes = kubectl.list("nodes")
        except Refused:  # who may not see them
            most = MOST
        else:
            most = count(nodes, asked)
            if replicas > most:
                each = ", ".join(f"{what} {amount}" for what, amount in asked.items())
                so_many = f"{len(nodes)} node{'s' * (len(nodes) != 1)} with room for {most}"
                raise UserError(
                    f"REPLICAS={replicas}, and the cluster has {so_many} such pods ({each} each)",
                    f"add nodes, or lower CORES or MEMORY (make cluster-up); {remedy}",
                )
    if replicas > most:
        raise UserError(f"REPLICAS={replicas} is more than {most}", remedy)


def count(nodes: Sequence[Object], asked: Mapping[str, str]) -> int:
    """If no other pods were there."""
    amounts = {what: parse_quantity(text) for what, text in {**asked, "pods": "1"}.items()}
    return sum(
        min(
            int(parse_quantity(node["status"]["allocatable"].get(what, "")) / amount)
            for what, amount in amounts.items()
            if amount
        )
        for node in nodes
    )


def parse_quantity(text: str) -> Decimal:
    """Of what Kubernetes writes: "500m" of a processor, "16Gi". Nothing of what it would refuse."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d+)?)([A-Za-z]*)", text)
    return Decimal(found[1]) * UNITS.get(found[2], 0) if found else Decimal(0)
