"""Machines of their own on this one: their networks are namespaces, joined by a bridge that stands
in one too, and their processes those that name the machine's folder. Root alone may make them."""

import re
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from tests.project import run


def make_bridge(stack: ExitStack, namespace: str, host: str, cable: str) -> None:
    """With this machine plugged in, by that address. `cable` ends with this process's number."""
    _unplug_left(host)
    make_namespace(stack, namespace)
    inside = ["ip", "-n", namespace]
    run(*inside, "link", "add", "bridge", "type", "bridge")
    run(*inside, "link", "set", "bridge", "up")
    plug(namespace, "1", host, cable)


def make_namespace(stack: ExitStack, name: str) -> None:
    run("ip", "netns", "add", name)
    stack.callback(subprocess.run, ["ip", "netns", "delete", name])
    run("ip", "-n", name, "link", "set", "lo", "up")


def plug(bridge: str, namespace: str, address: str, name: str) -> None:
    """A cable from the bridge to that namespace; `1` is that of this machine's first process."""
    other = f"to-{address.rpartition('.')[2]}"
    run("ip", "-n", bridge, "link", "add", other, "type", "veth", "peer", "name", name)
    run("ip", "-n", bridge, "link", "set", name, "netns", namespace)
    run("ip", "-n", bridge, "link", "set", other, "master", "bridge", "up")
    there = ["ip"] if namespace == "1" else ["ip", "-n", namespace]
    run(*there, "address", "add", f"{address}/24", "dev", name)
    run(*there, "link", "set", name, "up")


def _unplug_left(address: str) -> None:
    """The cable of tests that were killed: with two of one address, none reaches anything."""
    for line in run("ip", "-oneline", "address", "show", "to", address).splitlines():
        cable = line.split()[1]
        owner = re.search(r"\d+$", cable)
        if owner and not psutil.pid_exists(int(owner[0])):
            run("ip", "link", "delete", cable)


def enter(namespace: str) -> list[str]:
    """Before a command that is to run there. Its cgroups stay visible, unlike by `ip netns
    exec`."""
    return ["nsenter", f"--net=/run/netns/{namespace}"]


def kill(folder: Path) -> None:
    """As a machine that loses its power: all that it runs."""
    while left := _processes(folder):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10)


def _processes(folder: Path) -> list[psutil.Process]:
    """Those of the shims too, which are nobody's children."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and any(
                str(folder) in word for word in process.cmdline()
            ):
                found |= {process, *process.children(recursive=True)}
    return list(found - {psutil.Process(), *psutil.Process().parents()})


def remove_groups(name: str) -> None:
    """The cgroups that a killed machine has left."""
    for controller in Path("/sys/fs/cgroup").glob(f"*/{name}"):
        for group in (*sorted(controller.rglob("*/"), reverse=True), controller):
            with suppress(OSError):
                group.rmdir()
