"""Hands the server's image to the engines of other nodes, where no registry does it.

make swarm-load NODES=ssh://user@node2,ssh://user@node3
"""

from extensions.swarm.arguments import nodes
from extensions.swarm.stack import SwarmStack
from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks.docker_engine import why_not_docker


def main() -> None:
    if obstacle := why_not_docker():
        raise UserError("images need Docker", obstacle)
    named = [each.strip() for each in nodes.value_in(arguments.load()).split(",") if each.strip()]
    if not named:
        raise UserError("no NODES given", "name them: make swarm-load NODES=ssh://user@node2")
    stack = SwarmStack(Settings.load())
    stack.images.build("server")
    for node in named:
        with console.waiting(f"handing the server's image to {node}"):
            stack.load_into(node)
        console.note(f"loaded into {node}: {stack.image}")
