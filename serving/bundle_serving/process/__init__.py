"""The server's processes, and what they keep on the machine: notes, sockets, logs, locks."""
