"""Before a container with the door starts: creates a certificate if it needs one, and reports what
else is missing.

python -m bundle_door.prepare
"""

import os
import sys
from collections.abc import Iterable

from bundle_door.access import certificate
from bundle_door.settings import read_several
from bundle_serving.process.exposure import Exposure, of_environment

# A container cannot see at which address other machines reach its host.
SHOWN_HOST = "SHOWN_HOST"


def prepare_certificate(exposure: Exposure, names: list[str], shown: str) -> bool:
    """Returns whether a certificate was created."""
    if not exposure.is_guarded or exposure.certified:
        return False
    return certificate.ensure(exposure.tls_folder, names, shown)


def names(bind: str, hosts: Iterable[str]) -> list[str]:
    """The names that others may use for it; 0.0.0.0 is not one."""
    named = [] if bind in ("0.0.0.0", "::") else [bind]
    return [*named, *hosts]


def main() -> int:
    exposure = of_environment()
    hosts = read_several(os.environ.get("ALLOWED_HOSTS", ""))
    shown = os.environ.get(SHOWN_HOST, "")
    try:
        if prepare_certificate(exposure, names(exposure.bind, hosts), shown):
            print(f"- created a self-signed certificate in {exposure.tls_folder}", flush=True)
        problem = exposure.problem()
    except certificate.NoCertificate as fault:
        problem = str(fault)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
