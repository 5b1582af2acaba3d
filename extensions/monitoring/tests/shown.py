"""Why its command needs no rendering: tests/shown/every.py."""

NOTES_ALONE = {"monitoring": "where each part is"}
