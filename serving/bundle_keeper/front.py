"""Asks as users do: at the door's ports, by TLS and with a key where they want them."""

import argparse
import asyncio
import http.client
import ssl
import urllib.error

import grpc

from bundle_door.wire.calls import PREFIX, CallFailed, message_of, usual_fields
from bundle_door.wire.http2 import Connection, Reset
from bundle_serving.address import Address, trusting
from bundle_serving.health import ask_example, own

HEALTH = "/grpc.health.v1.Health/Check"
SECONDS = 8
# What a busy server answers: too many, too late.
BUSY = {429, 503, 504}
# It is busy; has as many connections as there may be, and closes each that comes beyond, before or
# after the question's first part is sent; or its certificate is being renewed, and the one in the
# folder is not yet shown.
PASSING = (TimeoutError, ConnectionResetError, BrokenPipeError, ssl.SSLCertVerificationError)
AWAY = "starting or has stopped"
# Envoy's words where it does not reach what is behind it.
NOT_REACHED = ("connect-failure", "connection failure", "connect error", "no healthy upstream")


class Front:
    def __init__(self, options: argparse.Namespace) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.address, options.address)
        self._http = own(Address(host, int(options.http_port)), options.admin_key_file)
        self._grpc_port = int(options.grpc_port)
        self._shared = bool(options.door_last)  # another server may answer there

    async def explain_closed(self, pipeline: str) -> str | None:
        """Why nobody is answered there; None also where it is only busy."""
        if self._http.port and (reason := await asyncio.to_thread(self._over_http, pipeline)):
            return f"port {self._http.port}: {reason}"
        if self._grpc_port and (reason := await self._over_grpc()):
            return f"port {self._grpc_port}: {reason}"
        return None

    def _over_http(self, pipeline: str) -> str | None:
        try:
            ask_example(self._http, pipeline, SECONDS)
        except urllib.error.HTTPError as refusal:
            told = refusal.read().decode(errors="replace")[:300]
            busy = refusal.code in BUSY and AWAY not in told and not _is_not_reached(told)
            # That one has not this pipeline.
            others = self._shared and refusal.code == http.HTTPStatus.NOT_FOUND
            return None if busy or others else f"HTTP {refusal.code}: {told}"
        except (OSError, ValueError, KeyError, http.client.HTTPException) as fault:
            reason = getattr(fault, "reason", fault)
            return None if isinstance(reason, PASSING) else str(reason) or type(reason).__name__
        return None

    async def _over_grpc(self) -> str | None:
        """Triton's own answer, by way of Envoy; it needs no key, and has no line in the log."""
        context = None
        if self._http.certificate:
            context = trusting(self._http.certificate)
            context.set_alpn_protocols(["h2"])
        connection = None
        try:
            async with asyncio.timeout(SECONDS):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection, self._http.host, self._grpc_port, ssl=context
                )
                body = [PREFIX.pack(False, 0)]
                stream = connection.request(usual_fields(HEALTH, SECONDS), body)
                await stream.ended
                message_of(stream)
        except CallFailed as failed:
            busy = failed.code in (
                grpc.StatusCode.DEADLINE_EXCEEDED,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            ) or (failed.code == grpc.StatusCode.UNAVAILABLE and not _is_not_reached(str(failed)))
            return None if busy else str(failed)
        except PASSING:
            return None
        except (OSError, Reset) as fault:
            return str(fault) or type(fault).__name__
        finally:
            if connection:
                connection.close()
        return None


def _is_not_reached(told: str) -> bool:
    return any(words in told for words in NOT_REACHED)
