"""An S3 server in a container, to try the model repository on S3.

make s3-up      starts it, creates its keys, and says how to use them
make s3-down    stops it; its data is kept until make clean
"""

import secrets
import shlex
import sys

from extensions.s3.place import OPERATOR, SERVER, write_keys
from extensions.s3.settings import s3_port
from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from scripts.stacks.containers import DockerStack
from scripts.stacks.docker_engine import require_done, why_not_docker

BUCKET = "models"
USERS = {"bundle:operator": OPERATOR, "bundle:server": SERVER}

NEXT = """To use it, write into .env:
    S3_PORT={port}
    REPOSITORY=s3://http://127.0.0.1:{port}/{bucket}/live
    S3_SERVER_CREDENTIALS={server}
and run once in this shell:
    export AWS_SHARED_CREDENTIALS_FILE={operator}"""


def main() -> None:
    settings = Settings.load()
    if obstacle := why_not_docker():
        raise UserError(obstacle, "the S3 server runs only in a container")
    (start if sys.argv[1:] == ["up"] else stop)(settings)


def start(settings: Settings) -> None:
    for user, path in USERS.items():
        if not path.exists():
            write_keys(
                path,
                f"[default]\naws_access_key_id = {user}\n"
                f"aws_secret_access_key = {secrets.token_hex(20)}\n",
            )
    stack = DockerStack(settings)
    stack.images.build("s3")
    with console.waiting("starting the S3 server"):
        started = stack.compose.run("up", "--detach", "--wait", "--no-build", "s3", quiet=True)
    remedy = "see docker compose logs s3; another port: S3_PORT=9100"
    require_done(started, "the S3 server does not start", remedy)
    text = NEXT.format(
        port=s3_port.value_in(settings),
        bucket=BUCKET,
        server=SERVER,
        operator=shlex.quote(str(OPERATOR)),
    )
    if console.Form.is_json:
        console.write_json({"says": text})
    else:  # to be copied: no line is broken
        console.out.print(text, markup=False, soft_wrap=True)


def stop(settings: Settings) -> None:
    compose = DockerStack(settings).compose
    if not compose.find("s3"):
        console.note("no S3 server was running")
        return
    stopped = compose.run("rm", "--stop", "--force", "s3", quiet=True)
    require_done(stopped, "the S3 server does not stop", "see docker compose ps")
    console.note("S3 server stopped; its data is kept")
