"""`make status` of several servers counts what all of them answered."""

from scripts.server.triton.models import Totals, list_answered


def test_all_servers_are_counted() -> None:
    told = [counted(90, 10, 20.0), counted(300, 0, 10.0), counted(0, 0, 0.0)]
    assert [*list_answered("counted", told)] == [
        ("counted, main", "1", "390", "10", "12.5"),
        ("counted_onnx", "1", "195", "0", "12.3"),
    ]


def counted(answered: int, failed: int, ms: float) -> Totals:
    """What a door has counted: so many requests of a pipeline, and of its step half."""
    return {
        ("counted", "1"): {"answered": answered, "failed": failed, "ms": ms},
        ("counted_onnx", "1"): {"answered": answered // 2, "failed": 0, "ms": ms},
    }
