"""Triton reads S3 without a key, as a pod does that shows its service account's token: rehearsed
with a stand-in for AWS's token service, before a server that knows roles and their policies.

    unshare --net --mount --pid --fork --kill-child \\
        python -m extensions.s3.tests.keyless FOLDER [--may-not-read]

Runs where nothing but itself is reached, under AWS's own name and port. Prints what Triton loaded.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3

from scripts.base.paths import PYTHON
from tests.project import run, wait_until

STS = "sts.us-east-1.amazonaws.com"
MOTO = "http://127.0.0.1:9000"
TOKEN = "of.the.account"
CONFIG = """
backend: "python"
input [{name: "X" data_type: TYPE_FP32 dims: [1]}]
output [{name: "Y" data_type: TYPE_FP32 dims: [1]}]
"""
PROGRAM = "class TritonPythonModel:\n    pass\n"
ANSWER = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{AccessKeyId}</AccessKeyId>
<SecretAccessKey>{SecretAccessKey}</SecretAccessKey><SessionToken>{SessionToken}</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


def client(name: str) -> Any:
    session: Any = boto3.Session("any", "any", region_name="us-east-1")
    return session.client(name, endpoint_url=MOTO)


def prepare(may: list[str]) -> tuple[str, dict[str, str]]:
    """A bucket, and a role that may do this there; returns the role, and keys of it for a while."""
    s3, iam = client("s3"), client("iam")
    s3.create_bucket(Bucket="models")
    s3.put_object(Bucket="models", Key="live/m/config.pbtxt", Body=CONFIG.encode())
    s3.put_object(Bucket="models", Key="live/m/1/model.py", Body=PROGRAM.encode())
    role = iam.create_role(RoleName="reads", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    iam.put_role_policy(RoleName="reads", PolicyName="reads", PolicyDocument=allow(*may))
    lent = client("sts").assume_role(RoleArn=role, RoleSessionName="pod")["Credentials"]
    return role, lent


def allow(*what: str) -> str:
    statement = {"Effect": "Allow", "Action": [*what], "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def lend_keys(role: str, keys: dict[str, str], folder: Path) -> None:
    """Of this role, to who shows the token."""

    class Lender(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # the client asks first whether it may send

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked = dict(urllib.parse.parse_qsl(body))
            if (asked.get("RoleArn"), asked.get("WebIdentityToken")) != (role, TOKEN):
                return self.send_error(403)
            self.send_response(200)
            self.send_header("Content-Type", "text/xml")
            answer = ANSWER.format(**keys).encode()
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return None

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 443), Lender)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def be_aws(folder: Path) -> None:
    """Its name leads here, and its certificate is trusted, for this process and its children."""
    run("ip", "link", "set", "lo", "up")
    (folder / "hosts").write_text(f"127.0.0.1 localhost {STS}\n")
    made = ("-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem", "-days", "2")
    name = ("-subj", f"/CN={STS}", "-addext", f"subjectAltName=DNS:{STS}")
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made, *name)
    run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    run("mount", "--bind", str(folder / "cert.pem"), "/etc/ssl/certs/ca-certificates.crt")


def is_there() -> bool:
    try:
        urllib.request.urlopen(f"{MOTO}/moto-api/data.json", timeout=5).close()
    except OSError:
        return False
    return True


def main(argv: list[str]) -> int:
    folder = Path(argv[0])
    be_aws(folder)
    words = [str(PYTHON.with_name("moto_server")), "--host=127.0.0.1", "--port=9000"]
    with (folder / "moto.log").open("wb") as log:
        moto = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        wait_until(is_there, "the server")
        # The server's own names for what AWS counts as ListBucket and GetObject.
        may = ["s3:ListBucket", "s3:HeadBucket", "s3:HeadObject"]
        may += [] if "--may-not-read" in argv else ["s3:GetObject"]
        role, keys = prepare(may)
        lend_keys(role, keys, folder)
        asking = urllib.request.Request(f"{MOTO}/moto-api/reset-auth", b"0")
        asking.add_header("Content-Type", "text/plain")
        urllib.request.urlopen(asking).close()
        (folder / "token").write_text(TOKEN)
        others = {name: each for name, each in os.environ.items() if not name.startswith("AWS_")}
        environment = {
            **others,
            "AWS_ROLE_ARN": role,
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(folder / "token"),
            "AWS_REGION": "us-east-1",
        }
        command = [str(PYTHON), "-m", "bundle_serving.process.start_server", "--load-model=m"]
        command += [f"--run-dir={folder}/run", f"--repository=s3://{MOTO}/models/live"]
        with (folder / "triton.log").open("wb") as log:
            triton = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        said = (folder / "triton.log").read_text
        found = r"successfully loaded '(\w+)'|error: (.*)"
        wait_until(lambda: re.search(found, said()) or triton.poll() is not None, "Triton")
        print(re.findall(found, said()), sorted(p.name for p in folder.glob("run/from-s3/*")))
        triton.kill()
        triton.wait()
    finally:
        moto.kill()
        moto.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
