"""Why its command needs no rendering: tests/shown/every.py."""

ELSEWHERE = {
    "watch": "in a terminal one line, drawn again for each frame: tests/client/test_watching.py",
}
