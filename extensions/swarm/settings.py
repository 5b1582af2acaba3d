"""A swarm"""

from scripts.settings.setting import Part, whole_or_none

replicas = whole_or_none(
    """How many servers a swarm has. Empty: as many as there are, or two.""", Part.COMMAND
)
