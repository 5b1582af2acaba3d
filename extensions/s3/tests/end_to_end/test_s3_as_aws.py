"""What AWS answers to each fault of a key, rehearsed with a server that answers as AWS does and
knows users and their policies."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from extensions.s3 import check
from extensions.s3.access import Keys
from extensions.s3.location import Location, parse
from scripts.base.errors import UserError
from scripts.base.paths import PYTHON
from scripts.settings.settings import Settings
from tests.project import Project, free_ports, wait_until
from tests.sources.layers import environment

BUCKET = "bundle-models"

# Within which each fault must be reported.
MOST_S = 10

ALL = f"arn:aws:s3:::{BUCKET}/models/live*"
LIVE = f"arn:aws:s3:::{BUCKET}/models/live/*"
BUCKET_ITSELF = f"arn:aws:s3:::{BUCKET}"


def allowed(*rights: tuple[str, str]) -> str:
    statements = [
        {"Effect": "Allow", "Action": f"s3:{what}", "Resource": on} for what, on in rights
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


# The first two are what extensions/s3/README.md asks for.
POLICIES = {
    "operator": allowed(
        ("ListBucket", BUCKET_ITSELF),
        *((f"{what}Object", ALL) for what in ("Get", "Put", "Delete")),
    ),
    "server": allowed(("ListBucket", BUCKET_ITSELF), ("GetObject", LIVE)),
    "no_list": allowed(("GetObject", LIVE)),
    "no_read": allowed(("ListBucket", BUCKET_ITSELF)),
    "puts_alone": allowed(("ListBucket", BUCKET_ITSELF), ("GetObject", LIVE), ("PutObject", ALL)),
    "puts_there": allowed(("ListBucket", BUCKET_ITSELF), ("GetObject", LIVE), ("PutObject", LIVE)),
    "deletes": allowed(("ListBucket", BUCKET_ITSELF), ("GetObject", LIVE), ("DeleteObject", LIVE)),
    "no_delete": allowed(("ListBucket", BUCKET_ITSELF), ("GetObject", ALL), ("PutObject", ALL)),
}


@dataclass
class Aws:
    url: str
    keys: dict[str, Keys]

    def location(self, path: str = "models/live", bucket: str = BUCKET) -> Location:
        return parse(f"s3://{self.url}/{bucket}/{path}")


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [PYTHON.with_name("moto_server"), "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: answers(url), "the server")
        anyone: dict[str, Any] = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
        anyone |= {"endpoint_url": url, "region_name": "us-east-1"}
        s3 = boto3.client("s3", **anyone)
        s3.create_bucket(Bucket=BUCKET)
        s3.put_object(Bucket=BUCKET, Key="models/live/labels.txt", Body=b"mug\n")
        yield Aws(url, {user: made(anyone, user, policy) for user, policy in POLICIES.items()})
    finally:
        server.terminate()
        server.wait()


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=5).close()
    except OSError:
        return False
    return True


def made(anyone: dict[str, Any], user: str, policy: str) -> Keys:
    iam: Any = boto3.Session().client("iam", **anyone)
    iam.create_user(UserName=user)
    iam.put_user_policy(UserName=user, PolicyName=user, PolicyDocument=policy)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    return Keys(user, key["AccessKeyId"], key["SecretAccessKey"], "", "us-east-1")


@pytest.fixture
def asks(aws: Aws) -> Iterator[Aws]:
    """From here on it asks who is there."""
    asked(aws, b"0")
    yield aws
    asked(aws, b"inf")


def asked(aws: Aws, free_requests: bytes) -> None:
    asking = urllib.request.Request(f"{aws.url}/moto-api/reset-auth", free_requests)
    asking.add_header("Content-Type", "text/plain")
    urllib.request.urlopen(asking, timeout=5).close()


def examine(
    aws: Aws,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    operator: Keys,
    server: str = "server",
) -> None:
    file = folder / "server.credentials"
    file.write_text(aws.keys[server].file())
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", operator.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", operator.secret)
    settings = Settings.load({"S3_SERVER_CREDENTIALS": str(file)}, Path("none"))
    check.examine(aws.location(), settings)


def test_the_documented_policies_are_enough(
    asks: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examine(asks, tmp_path, monkeypatch, asks.keys["operator"])


def test_make_s3_check_needs_no_more_than_it_installs(asks: Aws, tmp_path: Path) -> None:
    keys = tmp_path / "server.credentials"
    keys.write_text(asks.keys["server"].file())
    project = Project.bare(
        tmp_path,
        REPOSITORY=str(asks.location()),
        S3_SERVER_CREDENTIALS=str(keys),
        AWS_ACCESS_KEY_ID=asks.keys["operator"].key,
        AWS_SECRET_ACCESS_KEY=asks.keys["operator"].secret,
    )
    with environment(frozenset({"tools", "s3"})) as folder:
        (project.path / ".venv").symlink_to(folder)
        output = project.made("s3-check")
    assert "installing" not in output


@pytest.mark.parametrize(
    ("key", "secret", "cause"),
    [
        ("AKIAIOSFODNN7EXAMPLE", "", "S3 does not know your key AKIAIOSFODNN7EXAMPLE"),
        ("", "guessed", "the secret of your key {key} is wrong"),
    ],
)
def test_a_wrong_key_and_a_wrong_secret_are_told_apart(
    asks: Aws,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    secret: str,
    cause: str,
) -> None:
    right = asks.keys["operator"]
    wrong = Keys("", key or right.key, secret or right.secret, "", "")
    began = time.monotonic()
    with pytest.raises(UserError) as refused:
        examine(asks, tmp_path, monkeypatch, wrong)
    assert time.monotonic() - began < MOST_S
    assert refused.value.cause == cause.format(key=right.key)


@pytest.mark.parametrize(
    ("operator", "server", "words"),
    [
        ("no_list", "server", "may not list {place}; grant it s3:ListBucket"),
        ("no_read", "server", "may not read {place}; grant it s3:GetObject"),
        ("server", "server", "may not write to {place}; grant it s3:PutObject"),
        ("no_delete", "server", "may not delete in {place}; grant it s3:DeleteObject"),
        ("operator", "no_list", "may not list {place}; grant it s3:ListBucket"),
        ("operator", "no_read", "may not read {place}; grant it s3:GetObject"),
        ("operator", "operator", "may write to {place}; remove s3:PutObject"),
        ("operator", "puts_alone", "may write to {place}; remove s3:PutObject"),
        ("operator", "puts_there", "may write to {place}; remove s3:PutObject"),
        ("operator", "deletes", "may write to {place}; remove s3:PutObject"),
    ],
)
def test_each_right_that_is_missing_is_named(
    asks: Aws,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    operator: str,
    server: str,
    words: str,
) -> None:
    began = time.monotonic()
    with pytest.raises(UserError) as refused:
        examine(asks, tmp_path, monkeypatch, asks.keys[operator], server)
    assert time.monotonic() - began < MOST_S
    message = f"{refused.value.cause}; {refused.value.remedy}"
    assert words.format(place=asks.location()) in message
    whose = "the server's key" if operator == "operator" else "your key"
    assert message.startswith(
        f"{whose} {asks.keys[server if operator == 'operator' else operator].key}"
    )
