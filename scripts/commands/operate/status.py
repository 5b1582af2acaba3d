"""Shows whether the server answers, what it serves, and what that was built from.

    make status

Exit 0 if it answers a request, otherwise 1.
"""

import time
from contextlib import suppress

from bundle_door.access import certificate
from bundle_serving.address import Address
from scripts.base import console, tables
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.repository import evaluations, history
from scripts.server import known_flaws
from scripts.server.served import (
    describe_engine,
    explain_cut_off,
    find_served_version,
    unhealthy_reason,
)
from scripts.server.triton import models, triton_api
from scripts.stacks import flavour, state
from scripts.stacks.state import State

MOST_EVENTS = 5  # of the keeper's restorations


def main() -> None:
    known = state.require()
    version = find_served_version()
    stack = flavour.stack_of(known)
    reason = unhealthy_reason(stack, known, version.pipeline.ensemble)
    lost = _explain_lost_gpu(known)
    if reason:
        if stack.many:
            stack.many.show()
        if known.settings_at_start.replicas == 0:
            raise UserError("with REPLICAS=0 no server runs", "say how many: make scale REPLICAS=2")
        raise UserError(
            f"{version.served_as} does not answer on the {known.flavour} server ({reason})",
            lost or f"start it: {state.name_start()}",
        )
    http, grpc = known.shown
    network = f"{version.network} v{version.number}"
    ready = filter(None, ("ready", network, version.precision, http.url, f"gRPC {grpc}"))
    console.say(" · ".join(ready), version=version.number)
    servers = stack.many.find_addresses(known) if stack.many else {}
    told = models.read_all_totals(servers) if servers else [models.read_totals(known.http)]
    rows = models.list_answered(known.main, told)
    tables.show("lrrrr", ("model", "v", "answered", "failed", "ms each"), rows)
    if stack.many:
        many = f"{len(told)} server{'s' * (len(told) != 1)}"
        console.note(f"answered and failed: of {many}, since each started")
    if computes := describe_engine(version):
        console.note(computes)
    if version.evaluated:
        right = evaluations.describe(version.evaluated)
        console.note(f"{version.pipeline.ensemble} evaluated: {right}")
    console.note(known_flaws.summary(triton_api.get(known.http)["version"]))
    for event in stack.keeper_state().get("events", [])[-MOST_EVENTS:]:
        console.note(
            f"{time.strftime('%d %b %H:%M:%S', time.localtime(event['at']))}: {event['did']}"
        )
    if stack.many:
        stack.many.show()
    else:
        _show_shadows(known.http)
    for pipeline in pipelines.every():
        if cut := history.cut_off(history.read(pipeline)):
            console.note(explain_cut_off(pipeline, cut))
    shown = known.http.certificate
    if shown and (ends := certificate.explain_end(shown, certificate.SOON_S)):
        console.note(f"warning: {ends}; renew TLS_CERT if you set it, then {state.name_start()}")
    if lost:  # what is open keeps working; nothing more can be opened
        console.note(f"warning: {lost}")


def _show_shadows(address: Address) -> None:
    with suppress(UserError):  # an earlier door, which knows none
        for tried in triton_api.get(address, "/shadows"):
            counts = ", ".join(f"{count:,} {what}" for what, count in tried["counts"].items())
            console.note(f"{tried['model']}, version {tried['version']}, copies: {counts}")


def _explain_lost_gpu(known: State) -> str | None:
    if known.flavour != "gpu":
        return None
    # The code that talks to Docker takes a third of a second to import.
    from scripts.stacks.gpu import GpuStack

    return GpuStack(known.settings_at_start).explain_lost_gpu()
