"""The long tests of what has changed: `python -m tests.touched COMMIT` prints their files."""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator

from tests.project import ROOT

# Long by their place are the tests of what most changes do not touch. The others show that what is
# served answers rightly, over all its ways in, and lets in nothing else.
WHERE_TOUCHED = re.compile(
    r"""
    (kinds|extensions)/\w+/tests/(end_to_end|frameworks|pytorch)/
    | tests/(foreign|pytorch)/
    | tests/end_to_end/(keeping|measuring|own)/ | tests/end_to_end/building/test_layers\.py
    | tests/end_to_end/serving/test_(beyond_this_machine|one_step|several_users|tensors)\.py
    | tests/door/test_(balancer|candidates|elsewhere|keeper|life|memory|page|processes|relay)\.py
    | tests/door/watching/test_(captures|traces)\.py
    """,
    re.VERBOSE,
)

BUILDING, KEEPING, MEASURING, OWN, SERVING = (
    f"tests/end_to_end/{each}/test_"
    for each in ("building", "keeping", "measuring", "own", "serving")
)
# A file or folder -> the long tests of what it does, besides those of the folder above.
RULES: dict[str, tuple[str, ...]] = {
    "benchmark/": (f"{MEASURING}comparison.py", f"{KEEPING}soak.py", f"{KEEPING}torture.py"),
    "client/": ("extensions/similar/tests", "kinds/"),
    "compose": (f"{BUILDING}compose.py", f"{KEEPING}handover.py"),
    "compose.gpu.yaml": (f"{SERVING}gpu_rehearsal.py",),
    "compose.s3.yaml": ("extensions/s3/tests",),
    "deploy/": ("extensions/kubernetes/tests",),
    "docker/": (f"{BUILDING}compose.py", f"{SERVING}gpu_rehearsal.py"),
    "docs/": (),
    "extensions/": (),
    "kinds/": (f"{SERVING}kinds.py", f"{SERVING}together.py"),
    "model_repository/": (*(f"{SERVING}{each}.py" for each in ("kinds", "one_step", "together")),),
    "requirements/": (
        *(f"{BUILDING}{each}.py" for each in ("compose", "layers", "readme")),
        "tests/foreign",
        "tests/pytorch",
    ),
    "scripts/": (f"{KEEPING}lifecycle.py", f"{KEEPING}machine_refuses.py"),
    "scripts/evaluation/": (f"{MEASURING}eval.py",),
    "scripts/measuring/": (f"{MEASURING}bench.py", f"{MEASURING}comparison.py"),
    "scripts/recipes/": (
        *(f"{SERVING}kinds.py", f"{OWN}add_model.py", f"{OWN}own_main.py", "kinds/"),
    ),
    "scripts/repository/": (f"{KEEPING}rollout.py", f"{OWN}own_models.py", f"{OWN}add_model.py"),
    "scripts/program/": (f"{BUILDING}program.py",),
    "scripts/rollout/": (
        *(f"{KEEPING}rollout.py", "extensions/swarm/tests", f"{SERVING}kinds.py"),
        f"{MEASURING}eval.py",
    ),
    "scripts/server/": (
        *(f"{KEEPING}handover.py", f"{MEASURING}drift.py", f"{OWN}own_models.py"),
        *("extensions/upkeep/tests", f"{KEEPING}lifecycle.py"),
        *(f"{OWN}add_model.py", f"{OWN}own_main.py"),
    ),
    "scripts/stacks/": (
        *(f"{BUILDING}compose.py", f"{KEEPING}handover.py", "extensions/swarm/tests"),
        *(f"{SERVING}{each}.py" for each in ("beyond_this_machine", "gpu_rehearsal")),
        f"{SERVING}several_users.py",
    ),
    "scripts/intake/": ("tests/foreign", "tests/end_to_end/own"),
    "scripts/bootstrap.py": (f"{BUILDING}layers.py",),
    "scripts/artefacts/": ("tests/pytorch", "tests/tensorrt"),
    "scripts/steps/": ("kinds/", "tests/foreign", "tests/pytorch", "tests/tensorrt"),
    "scripts/tuning/": (f"{MEASURING}bench.py", f"{MEASURING}tune.py"),
    "serving/bundle_door/": (
        *("tests/door", "extensions/capture/tests", "extensions/similar/tests"),
        *(f"{KEEPING}soak.py", f"{KEEPING}torture.py", f"{SERVING}together.py"),
        f"{SERVING}beyond_this_machine.py",
    ),
    "serving/bundle_keeper/": (
        "tests/door/test_keeper.py",
        f"{KEEPING}keeper.py",
        f"{KEEPING}handover.py",
    ),
    "serving/bundle_serving/": (
        *(f"{SERVING}{each}.py" for each in ("one_step", "tensors", "together")),
        *(f"{KEEPING}keeper.py", "kinds/", "tests/pytorch"),
    ),
    "tests/": (),
    "tests/door/": ("tests/door",),
    "tests/rehearsal/": ("tests/tensorrt", f"{SERVING}gpu_rehearsal.py"),
    "tests/stand_ins.py": (f"{SERVING}gpu_rehearsal.py",),
    "README.md": (f"{BUILDING}readme.py",),
    "Makefile": (f"{BUILDING}readme.py",),
    ".ci/": (f"{BUILDING}readme.py",),
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
    if "/serving/page/" in path:
        yield "tests/door/test_page.py"
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
