"""Shows how far what each version answers has moved from its reference: its first answers.

make drift
make drift NEW=1       the last answers become the reference
"""

from datetime import datetime
from typing import Any

from scripts.base import console, tables
from scripts.base.errors import UserError
from scripts.repository import live
from scripts.server.triton import triton_api
from scripts.settings import arguments
from scripts.stacks import state

SHIFT, STABLE = 0.25, 0.1


def main() -> None:
    asked = arguments.load()
    if asked.new not in ("", "1"):
        raise UserError("NEW takes 1 here, and no file", "compare from now on: make drift NEW=1")
    known = state.require()
    known.require_one_server()
    versions: list[dict[str, Any]] = triton_api.get(known.http, "/drift")
    if asked.new:
        if not any(version["index"] for version in versions):
            raise UserError(
                "there are not enough answers since the last reference to take a new one",
                "make drift says how many there are",
            )
        versions = triton_api.post(known.http, "/drift")
    if not versions:
        console.note("nothing was answered in the last hour")
    for version in versions:
        show(version)
    if any(version["index"] for version in versions):
        console.note("to compare with the last answers from now on: make drift NEW=1")


def show(version: dict[str, Any]) -> None:
    network = live.describe_network(version["model"], version["version"])
    name = f"{network}, version {version['version']}"
    if right := version["accuracy"]:
        console.note(
            f"{name}: by its confidence about {right['estimated']:.1%} right, with 99% certainty at"
            f" most {right['at most']:.1%}; {right['labelled']:.1%} of labelled data"
        )
        show_classes(version["classes"])
    so_far = f"{version['answers']:,} of {version['wanted']:,} answers"
    if version["taken"] is None:
        console.note(f"{name}: no reference yet; {so_far}")
        return
    taken = datetime.fromtimestamp(version["taken"]).strftime("%Y-%m-%d %H:%M")
    reference = f"reference: {version['wanted']:,} answers, until {taken}"
    if not version["index"]:
        console.note(f"{name}: {reference}; {so_far} since")
        return
    told = ", ".join(f"{of} {far:.2f} ({reading(far)})" for of, far in version["index"].items())
    console.note(f"{name}: {told}; {reference}")
    moved = version["moved"]
    rows = [(each["class"], f"{each['then']:.1%}", f"{each['now']:.1%}") for each in moved]
    tables.show("lrr", ("class", "then", "now"), rows)


def show_classes(classes: list[dict[str, Any]]) -> None:
    """How often what is called so is right."""
    if not classes:
        console.note("how right it is of single classes cannot be told (docs/measuring/eval.md)")
        return
    rows = [
        (each["class"], f"{each['labelled']:.1%}", f"{each['estimated']:.1%}",
         f"{each['at least']:.1%} to {each['at most']:.1%}")
        for each in classes
    ]  # fmt: skip
    tables.show("lrrr", ("called so", "labelled", "about", "99% certain"), rows)


def reading(index: float) -> str:
    if index > SHIFT:
        return "a shift"
    return "stable" if index < STABLE else "between"
