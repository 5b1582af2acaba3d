"""Says whether perf_analyzer runs here: make bench asks before it installs anything for it."""

from scripts.measuring import perf_analyzer


def main() -> None:
    perf_analyzer.require_here()
