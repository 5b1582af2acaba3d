"""Triton reads S3 without a key, as a pod does that shows its service account's token: rehearsed
with a stand-in for AWS's token service, before a server that knows roles and their policies.

    unshare --net --mount --pid --fork --kill-child \\
        python -m extensions.s3.tests.keyless FOLDER [--may-not-read]

Runs where nothing but itself is reached, under AWS's own name and port. Prints what Triton loaded.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from scripts.base.paths import PYTHON
from tests.project import run, wait_until
from tests.surroundings import aws_roles
from tests.surroundings.aws_roles import BUCKET, GET, LIST, REGION, STS

HOST, PORT = "127.0.0.1", 9000
TOKEN = "of.the.account"
CONFIG = """
backend: "python"
input [{name: "X" data_type: TYPE_FP32 dims: [1]}]
output [{name: "Y" data_type: TYPE_FP32 dims: [1]}]
"""
PROGRAM = "class TritonPythonModel:\n    pass\n"


def be_aws(folder: Path) -> None:
    """Its name leads here, and its certificate is trusted, for this process and its children."""
    run("ip", "link", "set", "lo", "up")
    (folder / "hosts").write_text(f"{HOST} localhost {STS}\n")
    aws_roles.make_certificate(folder)
    run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    run("mount", "--bind", str(folder / "cert.pem"), "/etc/ssl/certs/ca-certificates.crt")


def main(argv: list[str]) -> int:
    folder = Path(argv[0])
    be_aws(folder)
    with aws_roles.knowing_roles(HOST, PORT, folder / "moto.log") as url:
        s3 = aws_roles.client(url, "s3")
        s3.put_object(Bucket=BUCKET, Key="live/m/config.pbtxt", Body=CONFIG.encode())
        s3.put_object(Bucket=BUCKET, Key="live/m/1/model.py", Body=PROGRAM.encode())
        role, keys = aws_roles.make_role(url, *LIST, *([] if "--may-not-read" in argv else [GET]))
        aws_roles.enforce(url)
        with aws_roles.lending_keys(HOST, role, keys, folder, TOKEN.__eq__):
            load(folder, url, role)
    return 0


def load(folder: Path, url: str, role: str) -> None:
    (folder / "token").write_text(TOKEN)
    others = {name: each for name, each in os.environ.items() if not name.startswith("AWS_")}
    environment = {
        **others,
        "AWS_ROLE_ARN": role,
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(folder / "token"),
        "AWS_REGION": REGION,
    }
    command = [str(PYTHON), "-m", "bundle_serving.process.start_server", "--load-model=m"]
    command += [f"--run-dir={folder}/run", f"--repository=s3://{url}/{BUCKET}/live"]
    with (folder / "triton.log").open("wb") as log:
        triton = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    said = (folder / "triton.log").read_text
    found = r"successfully loaded '(\w+)'|error: (.*)"
    wait_until(lambda: re.search(found, said()) or triton.poll() is not None, "Triton")
    print(re.findall(found, said()), sorted(p.name for p in folder.glob("run/from-s3/*")))
    triton.kill()
    triton.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
