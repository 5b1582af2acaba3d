"""How functions are named: one that does something begins with a verb, never with a participle.
`python -m tests.sources.function_names` lists those that do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.project import ROOT

PRODUCT = ("scripts", "kinds", "extensions", "serving", "client", "benchmark", "model_repository")

# Regular verbs whose first form ends as a participle does.
VERBS = {"embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed", "succeed"}
IRREGULAR = {
    *(
        "begun",
        "bound",
        "bought",
        "broken",
        "brought",
        "built",
        "caught",
        "chosen",
        "dealt",
        "done",
    ),
    *("driven", "fallen", "fed", "forgotten", "found", "frozen", "given", "gone", "grown", "heard"),
    *("held", "hidden", "kept", "known", "laid", "led", "left", "lost", "made", "meant", "met"),
    *(
        "paid",
        "risen",
        "said",
        "seen",
        "sent",
        "shown",
        "sold",
        "spent",
        "spoken",
        "stolen",
        "stood",
    ),
    *(
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "torn",
        "understood",
        "woken",
        "worn",
        "wound",
    ),
    *("written",),
}
PREPOSITIONS = {
    *("above", "across", "after", "along", "among", "apart", "around", "as", "aside", "at"),
    *(
        "before",
        "behind",
        "below",
        "beside",
        "between",
        "by",
        "down",
        "for",
        "from",
        "in",
        "inside",
    ),
    *(
        "into",
        "near",
        "of",
        "off",
        "on",
        "onto",
        "out",
        "outside",
        "over",
        "per",
        "since",
        "through",
    ),
    *("to", "under", "until", "up", "via", "with", "without"),
}


class Function(NamedTuple):
    path: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.name}"


def begins_with_participle(name: str) -> bool:
    first = name.strip("_").split("_")[0]
    return first in IRREGULAR or (first not in VERBS and bool(re.fullmatch(r"[a-z]+ed", first)))


def is_preposition(name: str) -> bool:
    return name.strip("_") in PREPOSITIONS


def find_functions() -> Iterator[Function]:
    for path in sorted(path for part in PRODUCT for path in (ROOT / part).rglob("*.py")):
        if "tests" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Function(path, node.lineno, node.name)


if __name__ == "__main__":
    functions = list(find_functions())
    misnamed = [f for f in functions if begins_with_participle(f.name) or is_preposition(f.name)]
    print(*misnamed, sep="\n")
    print(
        f"{len(misnamed)} of {len(functions)} function names ({len(misnamed) / len(functions):.1%})"
    )
