"""A checkout that a group shares: chgrp -R team . && chmod -R g+ws . Stdlib only."""

from __future__ import annotations

import os
import stat

from scripts.base.paths import ROOT


def is_shared() -> bool:
    """Whether what is created in the checkout belongs to its group, which may write there."""
    return ROOT.stat().st_mode & (stat.S_ISGID | stat.S_IWGRP) == stat.S_ISGID | stat.S_IWGRP


def share() -> None:
    """Lets the group write what this command creates."""
    if is_shared():
        os.umask(0o002)
