"""What `triton-bundle` answers. Stdlib only.

python -m scripts.program --folder . up     in a checkout, without make
"""

from __future__ import annotations

import io
import os
import sys

from bundle_client import __version__
from scripts.base.errors import WrongWord, run_guarded
from scripts.base.text import translate
from scripts.program import command_line, folder, help, verbs


def main() -> int:
    for stream in (sys.stdout, sys.stderr):  # what is shown has letters that not every locale has
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=stream.errors)
    return run_guarded(_answer)


def _answer() -> None:
    call = command_line.parse(sys.argv[1:], os.environ)
    folder.look_for_own(call)
    known = verbs.read()
    command_line.require_known(call.verb, known)
    called_as = command_line.PROGRAM, "|".join(known), "bundle"
    if call.verb == command_line.VERSION:
        print(__version__)
    elif call.verb == command_line.HELP:
        lines = help.describe(call.words, "ALL" in call.settings, known)
        print(translate("\n".join(lines), *called_as))
    elif call.verb == command_line.COMPLETION:
        if [*call.words] not in [[shell] for shell in help.SHELLS]:
            raise WrongWord("completion of which shell?", f"one of {', '.join(help.SHELLS)}")
        written = help.write_completion(call.words[0], known)
        print(translate(written, *called_as), end="")
    else:
        from scripts.settings.arguments import require_typed  # the settings of that folder

        folder.require_system()
        require_typed(call.settings, call.settings)
        folder.prepare(call.folder)
        folder.run(call, known)


if __name__ == "__main__":
    sys.exit(main())
