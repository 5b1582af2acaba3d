"""What its commands are given."""

from scripts.settings.setting import text

nodes = text("", "Engines of other nodes, as for DOCKER_HOST: ssh://node2,ssh://node3.")
