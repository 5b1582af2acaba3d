"""Why its command needs no rendering: tests/shown/every.py."""

NOTES_ALONE = {"add-callable": "what was written, or is served; the answers are JSON"}
