"""Faults that are kept for their words."""


def forget_frames(fault: Exception) -> Exception:
    """Of a fault, and of what it was raised for: they lead to the future that holds it. All would
    stay until Python looks for circles, and the picture with them: 60 MB of one request."""
    fault.__cause__ = fault.__context__ = None
    return fault.with_traceback(None)
