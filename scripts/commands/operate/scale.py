"""Starts more servers, or stops some, where a flavour has several.

make scale REPLICAS=4
"""

from scripts.base import lock
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state


def main() -> None:
    wanted = Settings.load().replicas
    with lock.one_at_a_time():  # a rollout that ends meanwhile leaves other servers
        known = state.load()
        many = flavour.many_of(known) if known else None
        if known is None or many is None:
            raise UserError(
                "there is one server here, or none", "for several: docs/measuring/scale.md"
            )
        if wanted is None:
            raise UserError("no REPLICAS given", "say how many servers: make scale REPLICAS=4")
        many.scale(known, wanted)
