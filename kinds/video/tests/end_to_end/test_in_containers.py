"""A video is watched in containers as on plain processes."""

import json
from pathlib import Path

import pytest

from kinds.video.tests.end_to_end.test_video import clip
from tests.project import Project


@pytest.mark.rare
@pytest.mark.parametrize("served", ["cpu", "gpu"], indirect=True)
def test_a_video_is_watched_in_containers(served: Project, tmp_path: Path) -> None:
    """And the next frame of its stream by the same process."""
    served.made("up", MODEL="video")
    told = served.made("watch", VIDEO=str(clip(tmp_path / "clip.mp4")), JSON="1")
    assert json.loads(told.splitlines()[-1])["smoothed"] == 30
