"""Requests of ours, such as the keeper's, are nobody's: they are answered, and count nowhere.

Their id tells them. It comes of the admin key, so no client can hide its requests under it.
"""

import hashlib
import hmac
import os
from typing import Any

# Names the id to the steps, whose server the keeper starts.
VARIABLE = "BUNDLE_OWN_REQUESTS"


def id_of(admin_key: str) -> str:
    return hmac.digest(admin_key.encode(), b"own requests", hashlib.sha256).hex()


class OwnRequests:
    """As a step tells them, among those that it is to answer: so published programs ask."""

    def __contains__(self, request: Any) -> bool:
        own = os.environ.get(VARIABLE)
        return bool(own) and request.request_id() == own


own_requests = OwnRequests()
