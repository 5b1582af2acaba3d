"""What a shell needs to complete commands and settings, from the table of the help. Stdlib only.

eval "$(triton-bundle completion bash)"          in ~/.bashrc
eval "$(triton-bundle completion zsh)"           in ~/.zshrc, after compinit
triton-bundle completion fish | source           in ~/.config/fish/config.fish
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from scripts.program.command_line import OPTIONS, OWN_VERBS, PROGRAM

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


def write(shell: str, verbs: Mapping[str, str], settings: Mapping[str, Iterable[str]]) -> str:
    """`verbs`: the help of each; `settings`: the names of those that each takes."""
    known = {**verbs, **OWN_VERBS, **OPTIONS}
    of_each = {name: " ".join(f"{each}=" for each in found) for name, found in settings.items()}
    of_each["help"], of_each["completion"] = " ".join(verbs), " ".join(SHELLS)
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


def _write_fish(known: Mapping[str, str], settings: Mapping[str, str]) -> Iterable[str]:
    yield f"complete -c {PROGRAM} -e\n"
    for name, about in known.items():
        once = f"complete -c {PROGRAM} -f -n __fish_use_subcommand"
        yield f"{once} -a {shlex.quote(name)} -d {shlex.quote(about)}\n"
    for name, each in settings.items():
        after = f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {name}'"
        yield f"{after} -a {shlex.quote(each)}\n"
