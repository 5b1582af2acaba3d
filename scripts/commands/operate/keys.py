"""Who may ask a server that other machines reach: lists, adds and revokes API keys. Each holds at
once, and without a restart.

    make keys                      the clients that have one
    make keys ADD=ann RATE=10      a key for ann, good for 10 requests a second (without RATE: any)
    make keys REVOKE=ann
"""

from collections.abc import Iterator

from bundle_door.access import key_file
from bundle_door.access.key_file import BadKeys, Client
from scripts.base import console, lock, tables
from scripts.base.errors import UserError
from scripts.settings import arguments
from scripts.stacks.exposure import KEYS


def main() -> None:
    asked = arguments.load()
    if asked.rate and not asked.add:
        raise UserError("RATE= applies only to a new key", "make keys ADD=ann RATE=10")
    try:
        with lock.one_at_a_time(lock.OF_KEYS):
            if asked.revoke:
                key_file.revoke(KEYS, asked.revoke)
                console.note(f"revoked: {asked.revoke}")
            if asked.add:
                show(asked.add, key_file.add(KEYS, Client(asked.add, asked.rate)))
            if not (asked.add or asked.revoke):
                show_clients()
    except BadKeys as fault:
        raise UserError.from_fault(fault, "make keys lists them") from None


def show(name: str, key: str) -> None:
    header = f"Authorization: Bearer {key}"
    console.note(f"the API key of {name}, shown only once; set BUNDLE_API_KEY to it, or send:")
    if console.Form.is_json:
        console.say(header, client=name, key=key)
    else:
        print(header)


def show_clients() -> None:
    if clients := [*list_clients()]:
        tables.show("lr", ("client", "requests a second"), clients)
    else:
        console.note("no keys yet; make keys ADD=ann makes one")


def list_clients() -> Iterator[tuple[str, str]]:
    for client in key_file.read(KEYS).values() if KEYS.exists() else ():
        yield client.name, "any" if client.per_second is None else f"{client.per_second:g}"
