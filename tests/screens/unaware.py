"""Starts a program that is told nothing of the machine's network interfaces.

    python tests/screens/unaware.py PROGRAM [ARGUMENT ...]

Chromium breaks off what it loads (ERR_NETWORK_CHANGED) whenever an address comes or goes, as it
does with each container of the tests beside. It hears of them over a netlink socket; where the
kernel refuses it one, it takes the network as it is.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

# seccomp.h, prctl.h and bpf_common.h of the kernel.
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
CALL_AT, FIRST_ARGUMENT_AT = 0, 16  # in struct seccomp_data
SOCKET_CALL = {"x86_64": 41, "aarch64": 198}


def hear_nothing() -> None:
    instructions = (
        (LOAD, 0, 0, CALL_AT),
        (EQUAL, 0, 3, SOCKET_CALL[platform.machine()]),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (EQUAL, 0, 1, socket.AF_NETLINK),
        (RETURN, 0, 0, REFUSE | errno.EAFNOSUPPORT),
        (RETURN, 0, 0, ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
    program = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)):
        if libc.prctl(*call, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    hear_nothing()
    os.execvp(sys.argv[1], sys.argv[1:])
