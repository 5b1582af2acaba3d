"""Roles of AWS and what they may do on S3, as moto's server knows them; and a stand-in for AWS's
token service, which lends a role's keys to who shows a token."""

import json
import ssl
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3

from scripts.base.paths import PYTHON
from tests.project import run, wait_until

STS = "sts.us-east-1.amazonaws.com"
REGION = "us-east-1"
BUCKET = "models"
# The server's own names for what AWS counts as ListBucket and GetObject.
LIST, GET = ("s3:ListBucket", "s3:HeadBucket", "s3:HeadObject"), "s3:GetObject"
ANSWER = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{AccessKeyId}</AccessKeyId>
<SecretAccessKey>{SecretAccessKey}</SecretAccessKey><SessionToken>{SessionToken}</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


@contextmanager
def knowing_roles(host: str, port: int, log: Path) -> Iterator[str]:
    """Where the server is; it has a bucket, and refuses nobody before `enforce`."""
    url = f"http://{host}:{port}"
    words = [str(PYTHON.with_name("moto_server")), f"--host={host}", f"--port={port}"]
    with log.open("wb") as file:
        moto = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        wait_until(lambda: _is_there(url), "the server")
        client(url, "s3").create_bucket(Bucket=BUCKET)
        yield url
    finally:
        moto.kill()
        moto.wait()


def _is_there(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=5).close()
    except OSError:
        return False
    return True


def client(url: str, name: str) -> Any:
    session: Any = boto3.Session("any", "any", region_name=REGION)
    return session.client(name, endpoint_url=url)


def make_role(url: str, *may: str) -> tuple[str, dict[str, str]]:
    """One that may do this in the bucket, and keys of it for a while."""
    statement = {"Effect": "Allow", "Action": [*may], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam = client(url, "iam")
    role = iam.create_role(RoleName="reads", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    iam.put_role_policy(RoleName="reads", PolicyName="reads", PolicyDocument=policy)
    lent = client(url, "sts").assume_role(RoleArn=role, RoleSessionName="pod")["Credentials"]
    return role, lent


def enforce(url: str) -> None:
    """From now on it asks who it is that asks, and what that one may."""
    asking = urllib.request.Request(f"{url}/moto-api/reset-auth", b"0")
    asking.add_header("Content-Type", "text/plain")
    urllib.request.urlopen(asking).close()


def make_certificate(folder: Path) -> None:
    """Of the token service: cert.pem and key.pem."""
    made = ("-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem", "-days", "2")
    name = ("-subj", f"/CN={STS}", "-addext", f"subjectAltName=DNS:{STS}")
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made, *name)


@contextmanager
def lending_keys(
    host: str, role: str, keys: dict[str, str], folder: Path, is_trusted: Callable[[str], bool]
) -> Iterator[None]:
    """Of this role, on AWS's port, to who shows a token that is trusted."""

    class Lender(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # the client asks first whether it may send

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked = dict(urllib.parse.parse_qsl(body))
            if asked.get("RoleArn") != role or not is_trusted(asked.get("WebIdentityToken", "")):
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

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with ThreadingHTTPServer((host, 443), Lender) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
