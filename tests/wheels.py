"""Packages that are made in no time, for pip to install from a folder."""

import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str, text: str, needs: str = "") -> Path:
    """Of one module."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    content = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{each},,\n" for each in (*content, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for each, lines in (*content.items(), (f"{info}/RECORD", record)):
            wheel.writestr(each, lines)
    return path
