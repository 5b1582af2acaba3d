"""Listening sockets: those of another process as our own, and who is asked of those that share a
port."""

import ctypes
import os
import socket
import struct
from collections.abc import Collection
from contextlib import suppress

# From the kernel's headers. Python does not have pidfd_getfd.
PIDFD_GETFD = 438
SO_ATTACH_REUSEPORT_CBPF, BPF_RETURN = 51, 0x06


def copy_listeners(pid: int, ports: Collection[int]) -> list[socket.socket]:
    """Those at these ports: what has come to them outlives the process. None where the system
    refuses it, as it does in most containers, and with Yama if it is not our descendant."""
    found = []
    with suppress(OSError):  # it has ended, or may not be looked at
        process = os.pidfd_open(pid)
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                with suppress(FileNotFoundError):  # closed meanwhile
                    if os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):  # noqa: PTH115
                        each = socket.socket(fileno=_copy(process, int(number)))
                        if _is_listener(each, ports):
                            found.append(each)
                        else:
                            each.close()
        finally:
            os.close(process)
    return found


def _copy(process: int, number: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if (copy := int(libc.syscall(PIDFD_GETFD, process, number, 0))) < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return copy


def _is_listener(each: socket.socket, ports: Collection[int]) -> bool:
    if each.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    listens = each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return bool(listens) and each.getsockname()[1] in ports


def choose(sharing: socket.socket, number: int) -> None:
    """Of the listeners that share its port, the one with this number, in the order in which they
    began; if there are fewer, the kernel decides by itself again. An OSError where it cannot."""
    choice = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RETURN, 0, 0, number))
    program = struct.pack("HP", 1, ctypes.addressof(choice))
    sharing.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)
