"""Asks OSV (https://osv.dev) for known flaws of every package: those of the environment's layers,
those that models' programs have of their own, and those of the server's image if it is built.
Exit 1 if there are any.

    make audit

Where OSV cannot be reached, its last answer is shown, with its date.
"""

from extensions.upkeep import audit
from extensions.upkeep.audit import Answer, Package
from scripts.base import console, tables
from scripts.base.errors import UserError
from scripts.repository import archive
from scripts.server import known_flaws
from scripts.settings.settings import Settings
from scripts.stacks import flavour


def main() -> int:
    for version in known_flaws.read_listed()["tritonserver"]:
        console.note(known_flaws.summary(version))
    packages = [*audit.of_layers(), *audit.of_versions(archive.HERE), *in_images()]
    with console.waiting(f"asking OSV about {len(packages)} packages"):
        answer = ask_osv(packages)
    if lacking := answer.lacking(packages):
        console.note(f"{lacking} packages are newer than that answer")
    flawed = [each for each in packages if answer.flaws.get(each.title)]
    if flawed:
        rows = [(each.title, f"{', '.join(answer.flaws[each.title])} (in {', '.join(each.where)})")
                for each in flawed]  # fmt: skip
        tables.show("ll", ("package", "flaws"), rows)
    found = f"{len(flawed)} of {len(packages)} packages have known flaws"
    console.note(f"{found} (OSV, {answer.asked}); make pins ONLY=… renews one")
    return 1 if flawed else 0


def in_images() -> list[Package]:
    if "cpu" not in flavour.possible():
        return []
    from scripts.stacks.containers import DockerStack

    sbom = DockerStack(Settings.load()).images.sbom()
    return audit.of_sbom(sbom, "image server") if sbom else []


def ask_osv(packages: list[Package]) -> Answer:
    try:
        answer = audit.ask(packages)
    except (OSError, ValueError) as fault:
        earlier = audit.read_kept()
        if earlier is None:
            raise UserError(
                f"OSV does not answer ({fault}), and never did here",
                f"run it where {audit.OSV} can be reached",
            ) from None
        console.note(f"OSV does not answer ({fault}); this is its answer of {earlier.asked}")
        return earlier
    audit.keep(answer)
    return answer
