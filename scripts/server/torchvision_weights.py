"""Whether torchvision's weights can be downloaded here."""

import http.client
import ssl
import urllib.request

from scripts.base.paths import find_trusted

ANY = "https://download.pytorch.org/models/resnet50-11ad3fa6.pth"


def why_unavailable() -> str | None:
    """None if they can."""
    try:
        trusted = ssl.create_default_context(cafile=find_trusted())
        request = urllib.request.Request(ANY, method="HEAD")
        with urllib.request.urlopen(request, timeout=5, context=trusted):
            return None
    except (OSError, ValueError, http.client.HTTPException) as fault:
        return str(getattr(fault, "reason", fault))
