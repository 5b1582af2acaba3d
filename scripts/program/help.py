"""What `triton-bundle help` prints, and `make help`; and of the same table what a shell needs to
complete commands and settings. Stdlib only.

eval "$(triton-bundle completion bash)"          in ~/.bashrc
eval "$(triton-bundle completion zsh)"           in ~/.zshrc, after compinit
triton-bundle completion fish | source           in ~/.config/fish/config.fish
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence

from scripts.base.errors import WrongWord, run_guarded
from scripts.base.text import fold
from scripts.program.command_line import (
    OPTIONS,
    OWN_VERBS,
    PROGRAM,
    list_settings,
    suggest,
)
from scripts.program.verbs import Verb, group, read_all

# A column for the names, and one for their descriptions.
WIDTH, ROOM = 13, 96
MAKES_WIDTH, MAKES_INDENT = 12, " " * 20


def describe(words: Sequence[str], everything: bool, verbs: Mapping[str, Verb]) -> Iterator[str]:
    if not words:
        return _describe_all(verbs, everything)
    if words[0] in OWN_VERBS:
        return iter([f"{PROGRAM} {words[0]}: {OWN_VERBS[words[0]]}"])
    if words[0] not in verbs:
        raise WrongWord(f"no help on {words[0]}", suggest(words[0], verbs))
    return _describe_one(verbs[words[0]])


def _describe_all(verbs: Mapping[str, Verb], everything: bool) -> Iterator[str]:
    yield f"{PROGRAM} COMMAND [SETTING=VALUE …]      {PROGRAM} help COMMAND explains one"
    for part, members in group(verbs.values(), everything).items():
        yield f"\n{part}"
        yield from (_row(verb.name, verb.about) for verb in members)
    yield f"\nOf {PROGRAM}"
    yield from (_row(name, about) for name, about in (OWN_VERBS | OPTIONS).items())
    if not everything:
        yield f"\nThe others: {PROGRAM} help --all"


def _describe_one(verb: Verb) -> Iterator[str]:
    described = verb.describe()
    yield f"{PROGRAM} {verb.name}: {verb.about}"
    if described:
        yield f"\n{described}"
    known = list_settings()
    yield "\nSettings"
    yield from (_row(name, known[name].comment) for name in find_settings(verb))
    yield "  The others work too: docs/settings.md has all of them."


def find_settings(verb: Verb) -> list[str]:
    """Those that its help names, in that order."""
    named = re.findall(r"\b([A-Z][A-Z_0-9]+)=", f"{verb.about} {verb.describe()}")
    return [name for name in dict.fromkeys(named) if name in list_settings()]


def _row(name: str, about: str) -> str:
    return fold(f"  {name:{WIDTH}} {about}", ROOM, " " * (WIDTH + 3))


def print_for_make() -> None:
    everything = bool(os.environ.get("ALL"))
    is_terminal = sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal else sys.maxsize
    for part, verbs in group(read_all().values(), everything).items():
        print(f"\n{part}")
        for verb in verbs:
            line = fold(f"  make {verb.name:{MAKES_WIDTH}} {verb.about}", width or 80, MAKES_INDENT)
            print(
                line.replace(f"make {verb.name}", f"\033[1mmake {verb.name}\033[0m", 1)
                if is_terminal
                else line
            )
    if not everything:
        print("\nThe others: make help ALL=1")


SHELLS = ("bash", "zsh", "fish")

BASH = """\
_triton_bundle() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} settings=
    # The value of a setting: a file.
    if [[ $word == = || $before == = ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "${{word#=}}")
        return
    fi
    if (( COMP_CWORD == 1 )); then
        mapfile -t COMPREPLY < <(compgen -W "{words}" -- "$word")
        return
    fi
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    compopt -o nospace
    mapfile -t COMPREPLY < <(compgen -W "$settings" -- "$word")
}}
complete -F _triton_bundle {program}
"""

ZSH = """\
#compdef {program}
_triton_bundle() {{
    local -a commands settings
    if (( CURRENT == 2 )); then
        commands=({words})
        _describe command commands
    elif [[ $PREFIX == *=* ]]; then
        compset -P '*='
        _files
    else
        case $words[2] in
{cases}
        esac
        compadd -S '' -a settings
    fi
}}
compdef _triton_bundle {program}
"""


def write_completion(shell: str, verbs: Mapping[str, Verb]) -> str:
    listed = {verb.name: verb for verb in verbs.values() if verb.about}
    known = {name: verb.about for name, verb in listed.items()} | OWN_VERBS | OPTIONS
    of_each = {
        name: " ".join(f"{each}=" for each in find_settings(verb)) for name, verb in listed.items()
    }
    of_each["help"], of_each["completion"] = " ".join(listed), " ".join(SHELLS)
    if shell == "fish":
        return "".join(_write_fish(known, of_each))
    if shell == "zsh":
        described = (f"{name}:{about}" for name, about in known.items())
        words = " ".join(shlex.quote(each) for each in described)
        cases = _write_cases(of_each, "({})")
        return ZSH.format(program=PROGRAM, words=words, cases=cases)
    return BASH.format(program=PROGRAM, words=" ".join(known), cases=_write_cases(of_each, '"{}"'))


def _write_cases(settings: Mapping[str, str], quoted: str) -> str:
    return "\n".join(
        f"        {name}) settings={quoted.format(each)} ;;" for name, each in settings.items()
    )


def _write_fish(known: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[str]:
    yield f"complete -c {PROGRAM} -e\n"
    for name, about in known.items():
        once = f"complete -c {PROGRAM} -f -n __fish_use_subcommand"
        yield f"{once} -a {shlex.quote(name)} -d {shlex.quote(about)}\n"
    for name, each in settings.items():
        after = f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {name}'"
        yield f"{after} -a {shlex.quote(each)}\n"


if __name__ == "__main__":
    sys.exit(run_guarded(print_for_make))
