"""kubectl, as a program: objects in and out as JSON."""

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scripts.base import console
from scripts.base.errors import UserError
from scripts.base.text import printable

Object = dict[str, Any]

# What it says while the API server is away, or has just come.
AWAY = (
    *("connection refused", "was refused - did you", "connect: ", "unexpected EOF", ": EOF"),
    *("TLS handshake timeout", "Error from server (Timeout)"),
    *("ServiceUnavailable", "etcdserver:", "connection reset", "i/o timeout", "connection lost"),
    *("apiserver not ready", "InternalError"),
)
AWAY_S = 90


class Refused(UserError):
    def __init__(self, words: Sequence[str], said: str) -> None:
        lines = [line for line in said.splitlines() if line.strip()]
        errors = [line for line in lines if not line.startswith("Warning:")] or lines
        cause = printable(errors[-1].removeprefix("Error from server ")) if errors else "no message"
        super().__init__(f"the cluster refuses `kubectl {words[0]}`: {cause}", _remedy(said))


def _remedy(said: str) -> str:
    if "namespaces" in said and "not found" in said:
        return "make it (kubectl create namespace …), or set NAMESPACE"
    if "orbidden" in said:
        return "ask who runs the cluster for this right, or use another namespace: NAMESPACE="
    return "check NAMESPACE and CONTEXT; extensions/kubernetes/README.md"


@dataclass(frozen=True)
class Kubectl:
    namespace: str
    context: str

    def command(self, *words: str) -> list[str]:
        context = [f"--context={self.context}"] if self.context else []
        return ["kubectl", *context, f"--namespace={self.namespace}", *words]

    def run(self, *words: str, given: str | bytes = "", patience: float = AWAY_S) -> str:
        """What it printed. An API server that is away may be restarting."""
        began, is_told = time.monotonic(), False
        while True:
            sent = given.encode() if isinstance(given, str) else given
            ran = subprocess.run(self.command(*words), input=sent, capture_output=True)
            said = ran.stderr.decode(errors="replace")
            if ran.returncode == 0:
                return ran.stdout.decode(errors="replace")
            away = any(each in said for each in AWAY)
            if not away or time.monotonic() - began > patience:
                raise Refused(words, said)
            if not is_told:
                console.note(f"the cluster does not answer; asked again for {patience:.0f} s …")
                is_told = True
            time.sleep(1)

    def get(self, *words: str) -> Object:
        """Empty if there is none."""
        said = self.run("get", *words, "--ignore-not-found", "--output=json")
        found: Object = json.loads(said) if said.strip() else {}
        return found

    def list(self, kind: str, *words: str) -> list[Object]:
        found: list[Object] = self.get(kind, *words).get("items", [])
        return found

    def apply(self, objects: Sequence[Object], *options: str) -> None:
        """What another manager owns is taken over: a user's `kubectl edit` ends here."""
        command = ("apply", "--server-side", "--force-conflicts", "--field-manager=triton-bundle")
        listed = {"apiVersion": "v1", "kind": "List", "items": [*objects]}
        self.run(*command, *options, "--filename=-", given=json.dumps(listed))


def find_context() -> str:
    """The current one, by its name: it may be another one at the next command."""
    if not shutil.which("kubectl"):
        raise UserError(
            "there is no kubectl here", "install it: https://kubernetes.io/docs/tasks/tools"
        )
    asked = subprocess.run(["kubectl", "config", "current-context"], capture_output=True, text=True)
    if asked.returncode or not asked.stdout.strip():
        raise UserError(
            "kubectl knows no cluster", "name its configuration: KUBECONFIG=file, or set CONTEXT"
        )
    return asked.stdout.strip()


def read_all(text: str) -> tuple[list[Object], str]:
    """Objects that stand one after the other, and what of the next one is there."""
    found = list[Object]()
    while text := text.lstrip():
        try:
            each, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            break
        found.append(each)
        text = text[end:]
    return found, text
