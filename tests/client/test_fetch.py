import time

import pytest

from bundle_client import SourceError
from bundle_client.sources import read
from tests.client.stand_in import StandIn


def test_a_url_is_fetched_and_redirects_followed(stand_in: StandIn) -> None:
    stand_in.pages["/picture"] = b"picture"
    assert read(f"http://{stand_in.url}/picture", 100, 5) == b"picture"
    assert read(f"HTTP://{stand_in.url}/moved", 100, 5) == b"picture"


def test_a_url_may_have_what_browsers_write_for_one(stand_in: StandIn) -> None:
    stand_in.pages["/caf%C3%A9/a%20b%2B.jpg"] = b"picture"
    assert read(f"http://{stand_in.url}/café/a b%2B.jpg", 100, 5) == b"picture"


def test_a_page_that_is_not_there(stand_in: StandIn) -> None:
    with pytest.raises(SourceError, match="HTTP 404"):
        read(f"http://{stand_in.url}/none", 100, 5)


def test_too_much_is_refused_before_it_is_read(stand_in: StandIn) -> None:
    stand_in.pages["/picture"] = bytes(101)
    with pytest.raises(SourceError, match="larger than"):
        read(f"http://{stand_in.url}/picture", 100, 5)


def test_a_server_that_drips_is_left(stand_in: StandIn) -> None:
    started = time.monotonic()
    with pytest.raises(SourceError, match=r"no answer within 0\.3 s"):
        read(f"http://{stand_in.url}/drip", 10_000, 0.3)
    assert time.monotonic() - started < 8


def test_half_a_picture_is_none(stand_in: StandIn) -> None:
    with pytest.raises(SourceError, match="cut off"):
        read(f"http://{stand_in.url}/cut", 10_000, 5)


def test_nobody_listens(closed_port: int) -> None:
    with pytest.raises(SourceError, match="connection refused"):
        read(f"http://127.0.0.1:{closed_port}/picture", 100, 5)


@pytest.mark.parametrize("url", ["http://", "http:// /x", "http://[::1", "http://127.0.0.1:x/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(SourceError):
        read(url, 100, 1)
