"""Pictures from the web."""

import http.client
import ssl
import string
import time
import urllib.error
import urllib.parse
import urllib.request

from ..errors import SourceError, too_large
from .plain_http import take_in_time


def fetch(url: str, max_bytes: int, timeout: float) -> bytes:
    """The body of an http(s) URL, at most `max_bytes`, within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    try:
        # Many sites refuse Python's own user agent.
        url = urllib.parse.quote(url, safe=string.punctuation)  # a space, say, or an é
        request = urllib.request.Request(url, headers={"User-Agent": "triton-bundle-client"})
        with urllib.request.urlopen(request, timeout=timeout) as response:
            if int(response.headers.get("Content-Length") or 0) > max_bytes:
                raise too_large(max_bytes)
            body = bytearray()
            for piece in take_in_time(response, deadline):
                body += piece
                if len(body) > max_bytes:
                    raise too_large(max_bytes)
            if response.length:
                raise SourceError("the download was cut off", "try again")
            return bytes(body)
    except urllib.error.HTTPError as exc:
        raise SourceError(f"HTTP {exc.code} {exc.reason}", "open the URL in a browser") from exc
    except (OSError, ValueError, http.client.HTTPException) as exc:
        reason = getattr(exc, "reason", exc)
        if isinstance(reason, TimeoutError):
            raise SourceError(f"no answer within {timeout:g} s", "try again later") from exc
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise SourceError(
                f"certificate refused: {reason.verify_message}",
                "behind a proxy, set SSL_CERT_FILE to its CA file",
            ) from exc
        cause = getattr(reason, "strerror", None) or str(reason) or type(exc).__name__
        raise SourceError(cause.lower(), "check the URL and the network") from exc
