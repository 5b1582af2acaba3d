"""What a request says of its trace."""

import pytest

from bundle_serving.process.traces import traceparent


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ("{}", ""),
        ('{"traceparent":"00-aa-bb-01","top":1}', "00-aa-bb-01"),
        ('{"traceparent":1}', ""),
        ('{"asked":"traceparent"}', ""),
    ],
)
def test_the_traceparent_among_the_parameters(parameters: str, found: str) -> None:
    assert traceparent(parameters) == found
