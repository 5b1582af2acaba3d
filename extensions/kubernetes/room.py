"""How many pods a cluster has room for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from extensions.kubernetes.kubectl import Kubectl, Refused
from scripts.stacks.many_servers import Room

BINARY, DECIMAL = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), ("k", "M", "G", "T", "P", "E")
UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1024) ** power for power, unit in enumerate(BINARY, 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(DECIMAL, 1)},
}


def find(kubectl: Kubectl, asked: Mapping[str, str]) -> Room | None:
    """For pods that ask for so much each; None where nobody may see the nodes."""
    try:
        nodes = kubectl.list("nodes")
    except Refused:
        return None
    each = {what: parse_quantity(text) for what, text in {**asked, "pods": "1"}.items()}
    has = (node["status"]["allocatable"] for node in nodes)
    return Room(
        "cluster",
        [{what: parse_quantity(one.get(what, "")) for what in each} for one in has],
        each,
        f"such pods ({', '.join(f'{what} {amount}' for what, amount in asked.items())} each)",
        "CORES or MEMORY (make cluster-up)",
    )


def parse_quantity(text: str) -> Decimal:
    """Of what Kubernetes writes: "500m" of a processor, "16Gi". Nothing of what it would refuse."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d+)?)([A-Za-z]*)", text)
    return Decimal(found[1]) * UNITS.get(found[2], 0) if found else Decimal(0)
