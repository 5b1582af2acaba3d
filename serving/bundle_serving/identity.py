"""Which network a version is: a version's number may be given again, to another one."""

import hashlib
from pathlib import Path


def identity(folder: Path) -> str:
    """Of all files of a model's version, but those that Python or other tools leave there."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith((".", "__")) for part in name.parts):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            whole.update(f"{name}\0{content}\n".encode())
    return whole.hexdigest()[:32]
