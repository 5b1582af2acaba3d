"""Swift's four servers in one container, with two users: an operator who may do everything, and a
server that may only read the bucket.

The keys come from the two files of /run/secrets, the port from S3_PORT, the bucket from S3_BUCKET.
"""

import configparser
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from swift.common.direct_client import direct_put_container
from swift.common.internal_client import InternalClient
from swift.common.ring import Ring
from swift.common.utils import Timestamp

CONFIG = Path("/etc/swift")
PROXY = Path("/tmp/proxy-server.conf")
STORAGE = {"account": 6202, "container": 6201, "object": 6200}
ACCOUNT = "AUTH_bundle"  # tempauth's name for the account of bundle:operator
READER = "bundle:server"
START_S = 30


def secret(user):
    keys = configparser.ConfigParser()
    keys.read_string(Path(f"/run/secrets/s3-{user}").read_text())
    return keys["default"]["aws_secret_access_key"]


def wait_for(port):
    deadline = time.monotonic() + START_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline:
            sys.exit(f"nothing listens on port {port} after {START_S} s")
        time.sleep(0.1)


def let_read(bucket):
    """Not through the proxy, which accepts this header only from an owner; here there is none."""
    part, nodes = Ring(CONFIG, ring_name="container").get_nodes(ACCOUNT, bucket)
    header = {"X-Container-Read": READER, "X-Timestamp": Timestamp.now().internal}
    direct_put_container(nodes[0], part, ACCOUNT, bucket, headers=header)


def main():
    port = os.environ["S3_PORT"]
    values = {"port": port, "operator": secret("operator"), "server": secret("server")}
    PROXY.write_text((CONFIG / "proxy-server.conf").read_text() % values)
    servers = [["memcached", "-l", "127.0.0.1", "-m", "16"]]
    servers += [[f"swift-{kind}-server", CONFIG / f"{kind}-server.conf", "-v"] for kind in STORAGE]
    running = [subprocess.Popen(server) for server in servers]
    for storage_port in (11211, *STORAGE.values()):
        wait_for(storage_port)
    # Before the proxy starts: once the port is open, the bucket is there.
    client = InternalClient(str(CONFIG / "setup.conf"), "setup", 3)
    client.create_container(ACCOUNT, os.environ["S3_BUCKET"])
    let_read(os.environ["S3_BUCKET"])
    running.append(subprocess.Popen(["swift-proxy-server", PROXY, "-v"]))

    def stop(*_):
        for server in running:
            server.terminate()

    signal.signal(signal.SIGTERM, stop)
    os.wait()  # for any of them to exit: the container is restarted as a whole
    stop()


if __name__ == "__main__":
    main()
