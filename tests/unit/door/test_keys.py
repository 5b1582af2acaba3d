"""Who may ask, by a file of keys that is read again when it has changed."""

import asyncio
import resource
from pathlib import Path
from unittest.mock import Mock

import pytest

from bundle_door.access import key_file
from bundle_door.access.key_file import BadKeys, Client
from bundle_door.access.keys import Bucket, Keys
from bundle_door.answers import Refused
from bundle_door.front.envoy_process import Line
from bundle_door.front.messages import INFER
from bundle_door.requests import Request
from bundle_serving.protocol.kserve import pb


def test_who_was_revoked_stays_out_though_the_file_could_not_be_read_at_once(
    tmp_path: Path,
) -> None:
    """As with more connections than the process may have open files."""
    ann = f"Bearer {key_file.add(file := tmp_path / 'api.keys', Client('ann'))}"
    keys = Keys(file, None)
    asyncio.run(keys.admit(ann))
    key_file.revoke(file, "ann")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with asyncio.Runner() as runner:  # which needs files of its own
        runner.get_loop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            runner.run(keys.admit(ann))  # as it was known
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with pytest.raises(Refused, match="no valid API key"):
            runner.run(keys.admit(ann))


def test_of_who_was_revoked_nothing_is_told_any_more(tmp_path: Path) -> None:
    made = [key_file.add(file := tmp_path / "api.keys", Client(name)) for name in ("ann", "bob")]
    keys = Keys(file, admin := "0123456789abcdef")
    for key in (*made, admin):
        asyncio.run(keys.admit(f"Bearer {key}"))
    key_file.revoke(file, "ann")
    asyncio.run(keys.admit(f"Bearer {made[1]}"))
    assert keys.requests == {"bob": 2, "admin": 1}


@pytest.mark.usefixtures("umask_077")
def test_a_containers_door_reads_the_file_whatever_the_umask(tmp_path: Path) -> None:
    key_file.add(file := tmp_path / "api.keys", Client("ann"))
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_message_that_waits_heeds_a_rate_that_changes(tmp_path: Path) -> None:
    """Also of a new key under the old name, which would keep the old rate."""
    first = key_file.add(file := tmp_path / "api.keys", Client("ann", 2))
    keys = Keys(file, None)

    async def check() -> None:
        await keys.admit(f"Bearer {first}")
        await keys.admit(f"Bearer {first}")
        waiting = asyncio.create_task(keys.admit(f"Bearer {first}"))
        await asyncio.sleep(0)  # until it waits
        key_file.revoke(file, "ann")
        second = key_file.add(file, Client("ann", 1000))
        with pytest.raises(Refused, match="no valid API key"):
            await waiting
        async with asyncio.timeout(5):  # at the old rate it were ten seconds
            for _ in range(20):
                await keys.admit(f"Bearer {second}")

    asyncio.run(check())


def test_who_has_not_asked_for_long_has_a_seconds_worth() -> None:
    often, seldom = Bucket(5, 0.0), Bucket(0.5, 0.0)
    for now in (0.0, 3600.0):
        assert [often.wait_s(now) for _ in range(6)] == [*5 * [0], 0.2]
        assert [seldom.wait_s(now) for _ in range(2)] == [0, 2.0]


def test_a_debt_outlives_what_changes_of_others(tmp_path: Path) -> None:
    key = key_file.add(file := tmp_path / "api.keys", Client("ann", 0.1))
    keys = Keys(file, None)
    request = Request("GET", "/v2", {"authorization": f"Bearer {key}"})
    statuses = []
    for other in ("bob", "eve", "joe"):
        statuses.append(asyncio.run(keys.authorize(request, {})).status)
        key_file.add(file, Client(other))
    assert statuses == [200, 429, 429]


def test_of_many_messages_that_wait_only_one_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = f"Bearer {key_file.add(file := tmp_path / 'api.keys', Client('ann', 100))}"
    keys = Keys(file, None)
    looks = Mock(wraps=keys._wait_s)
    monkeypatch.setattr(keys, "_wait_s", looks)

    async def check() -> None:
        await asyncio.gather(*(keys.admit(ann) for _ in range(150)))

    asyncio.run(check())
    assert looks.call_count < 100 + 4 * 50


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "ten"])
def test_a_rate_that_is_none(tmp_path: Path, rate: str) -> None:
    file = tmp_path / "api.keys"
    file.write_text(f"ann {key_file.hash_key('key')} {rate}\n")
    with pytest.raises(BadKeys, match="line 1"):
        key_file.read(file)


def test_a_batch_that_no_model_takes_costs_no_more_than_one_that_it_takes(tmp_path: Path) -> None:
    key = key_file.add(file := tmp_path / "api.keys", Client("ann", 100))
    keys = Keys(file, None)
    keys.find_most_rows = {"batches": 8, "none": 0}.__getitem__

    async def check() -> None:
        async with asyncio.timeout(2):
            for model in ("batches", "none"):
                tensor = pb.ModelInferRequest.InferInputTensor(name="x", shape=[2**62])
                asked = pb.ModelInferRequest(model_name=model, inputs=[tensor])
                await keys.admit(f"Bearer {key}")
                keys.charge_message(f"Bearer {key}", asked.SerializeToString())
            for _ in range(100):
                await keys.admit(f"Bearer {key}")

    asyncio.run(check())


@pytest.mark.parametrize(
    ("status", "details", "seconds"),
    [
        ("OK", "via_upstream", 4),
        ("INVALID_ARGUMENT", "via_upstream", 4),  # by one picture that is damaged
        (None, "http2.remote_reset", 4),  # its client has hung up
        ("RESOURCE_EXHAUSTED", "request_payload_too_large", 1),  # nobody has computed anything
    ],
)
def test_a_batch_over_grpc_costs_its_rows_whatever_comes_of_it(
    tmp_path: Path, status: str | None, details: str, seconds: int
) -> None:
    key = key_file.add(file := tmp_path / "api.keys", Client("ann", 1))
    keys = Keys(file, None)
    keys.find_most_rows = lambda model: 8
    request = Request("GET", "/", {"authorization": f"Bearer {key}"})

    async def check() -> None:
        assert (await keys.authorize(request, {})).status == 200
        keys.charge_line(
            Line(
                *("grpc", "0", 1, 200, 1, 1),
                path=INFER,
                client="ann",
                model="m",
                rows=4,
                grpc_status=status,
                details=details,
            )
        )
        refused = await keys.authorize(request, {})
        assert refused.status == 429
        assert float(refused.headers["retry-after"]) == seconds

    asyncio.run(check())
