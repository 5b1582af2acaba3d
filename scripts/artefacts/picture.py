"""A picture of something that is an ImageNet class, and needs no download: a drawn coffee mug."""

from pathlib import Path

from PIL import Image

from scripts.base import files
from scripts.base.paths import ROOT

DRAWN = Path(__file__).with_name("mug.png")
FOR_USERS = ROOT / "build" / "mug.jpg"


def mug() -> Image.Image:
    return Image.open(DRAWN).convert("RGB")


def write_for_users() -> Path:
    """As a photo would be; where it is below the project."""
    with files.draft_of(FOR_USERS) as draft:
        mug().save(draft, "JPEG", quality=92)
    return FOR_USERS.relative_to(ROOT)
