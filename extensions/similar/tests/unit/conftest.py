"""What tests/client stands the service in with."""

from tests.client.conftest import closed_port, stand_in

__all__ = ["closed_port", "stand_in"]
