"""The long tests of what has changed: `python -m tests.touched COMMIT` prints their files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator

from tests.project import ROOT

END = "tests/end_to_end/test_"
# A file or folder -> the long tests of what it does, besides those of the folder above.
RULES: dict[str, tuple[str, ...]] = {
    "benchmark/": (f"{END}comparison.py", f"{END}soak.py", f"{END}torture.py"),
    "client/": ("extensions/similar/tests",),
    "compose": (f"{END}compose.py", f"{END}handover.py"),
    "compose.gpu.yaml": (f"{END}gpu_rehearsal.py",),
    "compose.s3.yaml": ("extensions/s3/tests",),
    "deploy/": ("extensions/kubernetes/tests",),
    "docker/": (f"{END}compose.py", f"{END}gpu_rehearsal.py"),
    "docs/": (),
    "extensions/": (),
    "kinds/": (f"{END}kinds.py",),
    "model_repository/": (f"{END}kinds.py", f"{END}one_step.py"),
    "requirements/": (f"{END}compose.py", f"{END}readme.py", "tests/foreign", "tests/pytorch"),
    "scripts/": (f"{END}lifecycle.py",),
    "scripts/evaluation/": (f"{END}eval.py",),
    "scripts/measuring/": (f"{END}bench.py", f"{END}comparison.py"),
    "scripts/recipes/": (
        *(f"{END}kinds.py", f"{END}add_model.py", f"{END}own_main.py"),
        f"{END}starving.py",
    ),
    "scripts/repository/": (f"{END}rollout.py", f"{END}own_models.py", f"{END}add_model.py"),
    "scripts/program/": (f"{END}program.py",),
    "scripts/rollout/": (
        *(f"{END}rollout.py", "extensions/swarm/tests", f"{END}kinds.py"),
        f"{END}eval.py",
    ),
    "scripts/server/": (
        *(f"{END}handover.py", f"{END}drift.py", f"{END}own_models.py"),
        *(f"{END}add_model.py", f"{END}own_main.py"),
    ),
    "scripts/stacks/": (
        *(f"{END}compose.py", f"{END}handover.py", "extensions/swarm/tests"),
        f"{END}gpu_rehearsal.py",
    ),
    "scripts/intake/": ("tests/foreign",),
    "scripts/artefacts/": ("tests/pytorch", "tests/tensorrt"),
    "scripts/steps/": ("tests/foreign", "tests/pytorch", "tests/tensorrt"),
    "scripts/tuning/": (f"{END}bench.py",),
    "serving/bundle_door/": ("tests/door", f"{END}soak.py", f"{END}torture.py"),
    "serving/bundle_keeper/": ("tests/door/test_keeper.py", f"{END}keeper.py", f"{END}handover.py"),
    "serving/bundle_serving/": (f"{END}keeper.py", f"{END}one_step.py", "tests/pytorch"),
    "tests/": (),
    "tests/door/": ("tests/door",),
    "tests/rehearsal/": ("tests/tensorrt", f"{END}gpu_rehearsal.py"),
    "tests/stand_ins.py": (f"{END}gpu_rehearsal.py",),
    "README.md": (f"{END}readme.py",),
    "Makefile": (f"{END}readme.py",),
    ".ci/": (f"{END}readme.py",),
}
# What no test runs.
NOTHING = tuple(
    [
        ".github/",
        ".dockerignore",
        ".env.example",
        ".gitignore",
        ".hadolint.yaml",
        ".pre-commit-config.yaml",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ]
)
TOOLS = "pyproject.toml"


def find_tests(changed: Iterable[str]) -> set[str]:
    return {test for path in changed for test in _tests_of(path) if (ROOT / test).exists()}


def is_known(path: str) -> bool:
    return path == TOOLS or path.startswith((*RULES, *NOTHING))


def _tests_of(path: str) -> Iterator[str]:
    for start, tests in RULES.items():
        if path.startswith(start):
            yield from tests
    parts = path.split("/")
    if parts[0] in ("kinds", "extensions") and len(parts) > 2:
        yield f"{parts[0]}/{parts[1]}/tests"
    if parts[-1].startswith("test_"):
        yield path


def main(base: str) -> int:
    listed = subprocess.run(
        ["git", "diff", "--name-only", base], cwd=ROOT, capture_output=True, text=True, check=True
    )
    print(*sorted(find_tests(listed.stdout.splitlines())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
