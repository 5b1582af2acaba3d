"""What a file of PyTorch's would run when it is read, seen before it is."""

import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.base.errors import UserError

AGAIN = "save it as ONNX: torch.onnx.export(…)"
TRUST = f"if you trust its maker: TRUST=1; otherwise have them {AGAIN}"
# What a TorchScript reaches out by: libraries' own classes, in its state too; files, libraries' own
# operators, and names that are not written out.
CLASSES = rb"\btorch\.classes\.(?!quantized\.)"
REACHING = {
    ".pkl": re.compile(CLASSES),
    ".py": re.compile(
        rb"\b(?:save|from_file)\b|\\[0-7xuU]|"
        rb"(?<![\w.])ops\.(?!(?:aten|prim|prims|quantized|torchvision)\.)|" + CLASSES
    ),
}


def require_no_pickles(program: Path) -> None:
    """Of torch.export: it unpickles what its archive says, and loads libraries that it holds."""
    from torch.export.pt2_archive import constants

    reader = _reader(program)
    for record in reader.get_all_records() if reader else ():
        if record.startswith(constants.AOTINDUCTOR_DIR):
            raise UserError(f"{program.name} holds a compiled library ({record})", AGAIN)
        if not _is_data(reader, record):
            raise UserError(
                f"{program.name} holds a pickle ({record}), which runs code when it is read", AGAIN
            )


def _is_data(reader: Any, record: str) -> bool:
    """Whether weights alone are unpickled because of this record."""
    import torch

    try:
        for each in _pickles(reader, record):
            content = io.BytesIO(reader.get_record(each))
            torch.load(content, map_location="cpu", weights_only=True)
    except Exception:  # of a dozen kinds
        return False
    return True


def _pickles(reader: Any, record: str) -> Iterator[str]:
    from torch.export.pt2_archive import constants

    folder, _, name = record.rpartition("/")
    if record.endswith(".pt"):
        yield record
    elif f"{folder}/" in (constants.WEIGHTS_DIR, constants.CONSTANTS_DIR) and ".json" in name:
        for each in json.loads(reader.get_record(record))["config"].values():
            path = each["path_name"]
            objects = (constants.CUSTOM_OBJ_FILENAME_PREFIX, constants.OPAQUE_OBJ_FILENAME_PREFIX)
            if each["use_pickle"] or path.startswith(objects):
                yield os.path.join(folder, path)  # noqa: PTH118  # exactly as it is read


def reaches_out(script: Path) -> str:
    """By which word a TorchScript reaches files, or what else is not arithmetic; or empty."""
    reader = _reader(script)
    for record in reader.get_all_records() if reader else ():
        words = REACHING.get(Path(record).suffix)
        if words and (found := words.search(reader.get_record(record))):
            return found[0].decode()
    return ""


def _reader(path: Path) -> Any:
    """PyTorch's own: another may read the same archive otherwise."""
    import torch

    try:
        return torch._C.PyTorchFileReader(str(path))
    except RuntimeError:  # it is none, which those who load it say
        return None
