"""Places on S3, the order in which things go there, and the words for what goes wrong."""

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ClientError

from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from bundle_serving.process.start_server import with_s3_keys
from extensions.s3 import check, place
from extensions.s3.access import Access, Keys
from extensions.s3.check import explain_faults
from extensions.s3.location import Location, from_settings, parse
from extensions.s3.place import address_from_containers
from extensions.s3.remote import Remote, list_in_order
from scripts.base.errors import UserError
from scripts.settings.settings import Settings

AWS = parse("s3://bundle-models/live")
KEYS = Keys("your key", "AKIA1", "secret", "", "eu-west-1")


def settings_with(**values: str) -> Settings:
    return Settings.load(values, Path("none"))


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("s3://bundle-models/live", Location(None, "bundle-models", "live")),
        ("s3://bundle-models/a/b.c", Location(None, "bundle-models", "a/b.c")),
        ("s3://http://127.0.0.1:9000/models/a", Location("http://127.0.0.1:9000", "models", "a")),
        ("s3://https://s3.me:443/models/a", Location("https://s3.me:443", "models", "a")),
        ("s3://s3.me:9000/models/a", Location("http://s3.me:9000", "models", "a")),
    ],
)
def test_a_place_is_read_as_triton_reads_it(url: str, meant: Location) -> None:
    assert parse(url) == meant
    assert parse(str(meant)) == meant


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://s3.me:9000/models/a", "s3://http://s3.me:9000"),
        ("/srv/models", "a folder here"),
        ("s3:/models/a", "s3://bucket/path"),
        ("s3://", "bucket is missing"),
        ("s3:///a", "bucket is missing"),
        ("s3://models", "models/models"),
        ("s3://models/", "models/models"),
        ("s3://Models/a", "lower-case letters"),
        ("s3://http://s3.me/models/a", "s3://http://s3.me:80/"),
        ("s3://https://s3.me/models/a", "s3://https://s3.me:443/"),
        ("s3://http://s3.me:9000", "bucket is missing"),
        ("s3://http://s3.me:9000/models", "9000/models/models"),
        ("s3://http://s3.me:99999/models/a", "65535"),
        ("s3://http://:9000/models/a", "not a host name"),
        ("s3://models/a/", "s3://models/a"),
        ("s3://models/a//b", "s3://models/a/b"),
        ("s3://models/a b", "space"),
        ("s3://models/ä", "letters"),
        ("s3://models/../a", ".."),
    ],
)
def test_a_place_that_triton_would_not_find_is_refused(url: str, word: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(url)
    assert word in f"{refused.value.cause}; {refused.value.remedy}"


def test_versions_lie_beside_what_is_served() -> None:
    archive = Remote(Access(AWS, KEYS, settings_with())).archive
    assert str(archive.location) == "s3://bundle-models/live-versions"
    assert from_settings(settings_with()) is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.1.1"])
def test_a_container_sees_this_machine_by_another_name_or_not_at_all(host: str) -> None:
    assert address_from_containers(AWS, settings_with()) is AWS
    with pytest.raises(UserError, match="containers cannot reach") as refused:
        address_from_containers(parse(f"s3://http://{host}:9999/models/a"), settings_with())
    assert "if make s3-up started it: S3_PORT=9999" in refused.value.remedy


def test_no_half_version_is_ever_seen(tmp_path: Path) -> None:
    for name in (
        f"{PIPELINE}/config.pbtxt",
        f"{PIPELINE}/configs/cpu.pbtxt",
        f"{PIPELINE}/labels.txt",
        "cascade/1/.gitkeep",
        "cascade/config.pbtxt",
        "network/2/manifest.json",
        "network/2/model.onnx",
        "network/config.pbtxt",
        "step/1/model.py",
        "step/1/transform.json",
        "step/warmup/mug.jpg",
        "step/1/__pycache__/model.pyc",
        "network/2/.model.onnx.17.tmp",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x" * (100 if "onnx" in name else 1))
    (tmp_path / PIPELINE / "1").mkdir()
    assert [each.name for each in list_in_order(tmp_path)] == [
        "step/warmup/mug.jpg",
        "network/2/model.onnx",
        "step/1/model.py",
        "network/2/manifest.json",
        "step/1/transform.json",
        "network/config.pbtxt",
        "cascade/1/.gitkeep",
        f"{PIPELINE}/labels.txt",
        f"{PIPELINE}/1/",
        "cascade/config.pbtxt",
        f"{PIPELINE}/config.pbtxt",
        f"{PIPELINE}/configs/cpu.pbtxt",
    ]


@pytest.mark.parametrize(
    ("code", "operation", "words"),
    [
        ("InvalidAccessKeyId", "ListObjectsV2", ("does not know", "AKIA1")),
        ("SignatureDoesNotMatch", "ListObjectsV2", ("secret",)),
        ("ExpiredToken", "ListObjectsV2", ("session token", "log in again")),
        ("AuthorizationHeaderMalformed", "ListObjectsV2", ("eu-west-1", "AWS_REGION=eu-north-1")),
        ("NoSuchBucket", "ListObjectsV2", ("no bucket bundle-models",)),
        ("AccessDenied", "ListObjectsV2", ("may not list", "s3:ListBucket")),
        ("AccessDenied", "GetObject", ("may not read", "s3:GetObject")),
        ("AccessDenied", "PutObject", ("may not write", "s3:PutObject")),
        ("RequestTimeTooSkewed", "ListObjectsV2", ("clock",)),
    ],
)
def test_what_aws_answers_becomes_a_cause_and_a_remedy(
    code: str, operation: str, words: tuple[str, ...]
) -> None:
    answer = {"Error": {"Code": code, "Message": "…", "Region": "eu-north-1"}}
    with pytest.raises(UserError) as refused, explain_faults(Access(AWS, KEYS, settings_with())):
        raise ClientError(answer, operation)  # type: ignore[arg-type]
    line = f"{refused.value.cause}; {refused.value.remedy}"
    assert all(word in line for word in words)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("InvalidAccessKeyId", "check S3_SERVER_CREDENTIALS,"),
        ("PermanentRedirect", "write region = eu-north-1 into S3_SERVER_CREDENTIALS"),
    ],
)
def test_a_fault_of_the_servers_key_names_its_file(code: str, remedy: str, tmp_path: Path) -> None:
    file = tmp_path / "server.credentials"
    file.write_text(KEYS.file())
    settings = settings_with(S3_SERVER_CREDENTIALS=str(file))
    answer = {"Error": {"Code": code, "Message": "…", "Region": "eu-north-1"}}
    with (
        pytest.raises(UserError) as refused,
        explain_faults(Access(AWS, KEYS, settings).of_server()),
    ):
        raise ClientError(answer, "ListObjectsV2")  # type: ignore[arg-type]
    assert refused.value.remedy.startswith(remedy)


@contextmanager
def listening(certificate: Path | None, answers: bool = True) -> Iterator[int]:
    """Somebody behind a port, with TLS or without, who is no S3 server."""
    server = socket.create_server(("127.0.0.1", 0))
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if certificate:
        secure.load_cert_chain(certificate)

    def serve() -> None:
        while True:
            try:
                caller = server.accept()[0]
            except OSError:
                return
            try:
                if certificate:
                    caller = secure.wrap_socket(caller, server_side=True)
                if answers:
                    caller.recv(4096)
                    caller.close()
                else:
                    held.append(caller)
            except OSError:
                caller.close()

    held: list[socket.socket] = []
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for each in held:
            each.close()


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def message_of(url: str) -> str:
    began = time.monotonic()
    with pytest.raises(UserError) as refused:
        check.require_reachable(parse(url), settings_with())
    assert time.monotonic() - began < 30, "must be reported sooner"
    return f"{refused.value.cause}; {refused.value.remedy}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command: list[str | Path] = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"]
    command += ["-subj", "/CN=localhost", "-keyout", path, "-out", path.with_suffix(".crt")]
    made = subprocess.run(command, capture_output=True)
    if made.returncode:
        pytest.skip("no openssl here")
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


def test_a_certificate_of_ones_own_is_named(key: None, certificate: Path) -> None:
    with listening(certificate) as port:
        assert "CA_BUNDLE=" in message_of(f"s3://https://127.0.0.1:{port}/models/a")


def test_http_spoken_to_https_is_named(key: None, certificate: Path) -> None:
    with listening(certificate) as port:
        assert "speaks https" in message_of(f"s3://http://127.0.0.1:{port}/models/a")


def test_https_spoken_to_http_is_named(key: None) -> None:
    with listening(None) as port:
        message = message_of(f"s3://https://127.0.0.1:{port}/models/a")
        assert "speaks plain http" in message or "TLS with" in message


def test_somebody_else_behind_the_port_is_named(key: None) -> None:
    with listening(None) as port:
        assert "as S3 does" in message_of(f"s3://http://127.0.0.1:{port}/models/a")


def test_who_takes_the_call_and_says_nothing_is_named(key: None) -> None:
    with listening(None, answers=False) as port:
        assert "in time" in message_of(f"s3://http://127.0.0.1:{port}/models/a")


def test_a_closed_port_and_an_unknown_host_are_told_apart(key: None) -> None:
    with listening(None) as port:
        pass
    assert "nothing is listening" in message_of(f"s3://http://127.0.0.1:{port}/models/a")
    assert "unknown host" in message_of("s3://http://nowhere.invalid:9000/models/a")


def test_aws_is_not_asked_without_a_region(
    key: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert "AWS_REGION" in message_of("s3://bundle-models/live")


def test_a_role_that_aws_refuses_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = {"Error": {"Code": "AccessDenied", "Message": "not authorized"}}
    refused = Mock(side_effect=ClientError(answer, "AssumeRole"))  # type: ignore[arg-type]
    monkeypatch.setattr(RefreshableCredentials, "_protected_refresh", refused)
    (tmp_path / "config").write_text(
        "[profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n"
        "[profile base]\naws_access_key_id = A\naws_secret_access_key = B\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "role")
    assert "AssumeRole operation: not authorized" in message_of("s3://bundle-models/live")


def test_who_lends_a_roles_keys_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("a token")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with listening(None, answers=False) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{port}")
        assert f'Read timeout on endpoint URL: "http://127.0.0.1:{port}' in message_of(str(AWS))


def test_the_servers_key_comes_from_its_file_alone(key: None, tmp_path: Path) -> None:
    file = tmp_path / "server.credentials"
    location = parse("s3://http://h:1/models/a")
    given = settings_with(S3_SERVER_CREDENTIALS=str(file))
    operator = Access.of_operator(location, given)
    file.write_text(Keys("", "READER", "100%secret", "token", "eu-west-1").file())
    found = operator.of_server().keys
    assert (found.key, found.secret, found.region) == ("READER", "100%secret", "eu-west-1")
    without = Access.of_operator(location, settings_with())
    assert without.of_server() == without and without.keys == operator.keys
    environment = with_s3_keys({"AWS_PROFILE": "mine", "PATH": "/bin"}, file)
    assert environment["AWS_SECRET_ACCESS_KEY"] == "100%secret"
    assert environment["AWS_SESSION_TOKEN"] == "token" and environment["PATH"] == "/bin"
    assert "AWS_PROFILE" not in environment


def test_keys_lie_where_nobody_else_comes_and_a_container_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "FOLDER", folder := tmp_path / "s3")
    for mode in (0o755, 0o700):
        place.write_keys(folder / "server.credentials", "secret")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "server.credentials").stat().st_mode & 0o777 == 0o444
        folder.chmod(mode)


@pytest.mark.parametrize("content", [None, "nothing", "[default]\naws_access_key_id = A\n"])
def test_a_useless_file_of_keys_is_refused(key: None, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "server.credentials"
    if content:
        file.write_text(content)
    given = settings_with(S3_SERVER_CREDENTIALS=str(file))
    operator = Access.of_operator(parse("s3://http://h:1/models/a"), given)
    with pytest.raises(UserError, match="S3_SERVER_CREDENTIALS"):
        operator.of_server()
