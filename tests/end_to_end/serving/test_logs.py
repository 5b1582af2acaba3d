"""make logs and make trace on a server that is up."""

import re
from pathlib import Path

from tests.plugin import everywhere
from tests.project import Project, interrupt, picture, wait_until

TIMED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (door|keeper|triton) ")


@everywhere
def test_a_request_is_traced_and_logged(served: Project, tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(picture())
    out = served.made("trace", IMG=str(photo))
    for row in ("client  connecting", "wire    to the door", "step    preprocessing"):
        assert row in out
    parts = [float(ms) for ms in re.findall(r"^(?:client|wire|door|step) .*?(\d+\.\d)", out, re.M)]
    (total,) = map(float, re.findall(r"^total +([\d.]+)$", out, re.M))
    assert abs(sum(parts) - total) < 0.1 * len(parts)
    (trace,) = re.findall(r"^trace (\w{32});", out, re.M)

    def of_the_request() -> list[str]:
        lines = served.made("logs", SINCE="5m").splitlines()
        return [line for line in lines if f"trace={trace}" in line]

    (line,) = wait_until(of_the_request, "the request's line")
    assert " pipeline=ensemble_python_resnet50 " in line and " preprocessing_ms=" in line


@everywhere
def test_the_log_is_one(served: Project) -> None:
    lines = served.made("logs", SINCE="1d").splitlines()
    timed = [line for line in lines if TIMED.match(line)]
    assert timed == sorted(timed, key=lambda line: line[:24])
    assert any(" triton " in line for line in timed)


def test_the_log_is_followed_until_ctrl_c(served: Project) -> None:
    logs = served.start_make("logs", "FOLLOW=1")
    assert "Traceback" not in interrupt(logs)


def test_what_cannot_be_traced(served: Project, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    refused = served.make("trace", IMG=str(tmp_path / "broken.jpg"))
    assert refused.returncode != 0
    assert refused.stderr.count("error:") == 1 and "Traceback" not in refused.stderr
    assert "make trace IMG=photo.jpg" in served.make("trace").stderr
    assert "5m" in served.make("logs", "SINCE=long").stderr
