"""Monitoring"""

from scripts.settings.setting import Part, path, port

prometheus_port = port(
    9090, "The port, on this machine alone, of the Prometheus of `make monitoring`.", Part.COMMAND
)
alertmanager_port = port(9093, "The port of its Alertmanager, likewise.", Part.COMMAND)
alertmanager_config = path(
    """A file of yours for Alertmanager: who is told of alerts, and how. Empty: nobody;
    Prometheus and Alertmanager show them.""",
    Part.COMMAND,
)
