"""Encrypted connections over HTTP."""

import ssl
from typing import Any

from ..errors import SourceError


class _UnderAName(ssl.SSLContext):
    """Expects a certificate of this name, whatever address is asked."""

    name: str | None = None

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return super().wrap_socket(*arguments, **self._add_name(options))

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return super().wrap_bio(*arguments, **self._add_name(options))

    def _add_name(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "server_hostname": self.name} if self.name else options


def context(ca_file: str | None, server_name: str | None) -> ssl.SSLContext:
    """Trusts this file's certificates alone, or without one what this machine trusts."""
    made = _UnderAName(ssl.PROTOCOL_TLS_CLIENT)
    made.name = server_name
    if ca_file is None:
        made.load_default_certs()
        return made
    # A server's own certificate will do, too.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        made.load_verify_locations(ca_file)
    except OSError as exc:
        raise SourceError(
            f"{ca_file} holds no certificates ({exc.strerror or exc})", "name a PEM file"
        ) from exc
    return made
