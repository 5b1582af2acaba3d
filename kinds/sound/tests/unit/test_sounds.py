"""WAV files -> windows of log-mel bands; and the sounds that a network is trained on."""

import struct
from pathlib import Path

import numpy as np
import pytest

from kinds.sound import drawings
from kinds.sound.drawings import NAMES
from kinds.sound.export import Listener
from kinds.sound.serving import wav
from kinds.sound.serving.sounds import LOG_MEL, SHARES, Hearing, cut, resample, to_windows
from kinds.sound.serving.wav import SoundError
from kinds.sound.tests.wav_files import BELL, chunk, encoded, form, made, riff, sine
from scripts.base.errors import UserError
from scripts.recipes import asking

HOW = Hearing(16_000, 2, 60, 1024, 320, 64, 50, 8000)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("coding", "bits"), wav.CODINGS)
def test_every_coding_gives_the_same_samples(coding: int, bits: int, channels: int) -> None:
    samples = sine(440, 8000)
    found = wav.read(made(samples, coding, bits, channels), 60)
    assert found.rate == 8000 and found.samples.dtype == np.float32
    assert np.abs(found.samples - samples).max() < (0.01 if bits == 8 else 1e-4)


def test_what_else_recorders_write() -> None:
    content = encoded(sine(440, 8000), 1, 16)
    known = wav.read(riff(form(1, 16), chunk(b"data", content)), 60).samples
    extensible = struct.pack("<HHIIHHHHIH14x", 0xFFFE, 1, 8000, 16000, 2, 16, 22, 16, 4, 1)
    others = chunk(b"LIST", b"odd"), chunk(b"fact", b"1234")
    for file in (
        riff(*others, form(1, 16), chunk(b"data", content), chunk(b"id3 ", b"name")),
        riff(chunk(b"fmt ", extensible), chunk(b"data", content)),
        riff(form(1, 16), chunk(b"data", content, wav.UNKNOWN_SIZE)),
        riff(form(1, 16), chunk(b"data", content)) + b"\0" * 999,  # beside a longer one
    ):
        assert np.array_equal(wav.read(file, 60).samples, known)
    louder = riff(form(3, 32), chunk(b"data", np.array([9.0, -90], "<f4").tobytes()))
    assert wav.read(louder, 60).samples.tolist() == [1, -1]


GOOD = made(sine(440, 8000, 0.01))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"", "is empty (0 bytes); send"),
        (b"What a day!!\n", "not a WAV file (it begins with b'What a day!!'); convert it: ffmpeg"),
        (b"ID3\x04" + b"\0" * 40, "not a WAV file"),
        (riff(), "it ends before its samples"),
        (riff(form(1, 16)), "it ends before its samples"),
        (riff(chunk(b"fmt ", b"\1\0\1\0")), "its format is cut off"),
        (riff(chunk(b"data", b"1234"), form(1, 16)), "does not say how its samples are coded"),
        (GOOD[:-3], "of 160 bytes of samples 157 are there"),
        (riff(form(1, 16), chunk(b"data", b"")), "the sound has no samples"),
        (riff(form(1, 16), chunk(b"data", b"1")), "the sound has no samples"),
        (riff(*[chunk(b"junk", b"")] * 200, form(1, 16)), "too many pieces"),
        (riff(form(7, 8), chunk(b"data", b"1234")), "of coding 7 with 8 bits"),
        (riff(form(1, 12), chunk(b"data", b"1234")), "of coding 1 with 12 bits"),
        (riff(form(1, 16, channels=0), chunk(b"data", b"1234")), "has 0 channels"),
        (riff(form(1, 16, channels=6), chunk(b"data", b"1234")), "has 6 channels; send one or two"),
        (riff(form(1, 16, rate=0), chunk(b"data", b"1234")), "has 0 samples a second; send from"),
        (
            riff(form(1, 16, rate=2_000_000_000), chunk(b"data", b"1234")),
            "2000000000 samples a second",
        ),
        (made(np.zeros(600 * 4000), 1, 8, rate=4000), "takes 600.0 s, more than the limit of 60 s"),
        (made(32767 * sine(440, 8000), 3, 32), "floats go up to 16383"),
        (made(np.array([0.0, np.nan]), 3, 32), "contains NaN or infinity"),
        (made(np.array([0.0, np.inf]), 3, 64), "contains NaN or infinity"),
        (made(np.array([0.0, 1e300]), 3, 64), "contains NaN or infinity"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_no_usable_sound_is_refused_in_one_line(file: bytes, message: str) -> None:
    with pytest.raises(SoundError) as refused:
        wav.read(np.frombuffer(file, np.uint8), 60)
    assert message in str(refused.value) and "; " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_bytes_at_all_raise_anything_else() -> None:
    random, good = np.random.default_rng(0), np.frombuffer(GOOD, np.uint8)
    for length in range(len(GOOD)):
        with pytest.raises(SoundError):
            wav.read(good[:length], 60)
    for _ in range(2000):
        odd = good.copy()
        odd[random.integers(0, 60, 3)] = random.integers(0, 256, 3)
        try:
            found = to_windows([odd], HOW)[LOG_MEL]
        except SoundError:
            continue
        assert np.isfinite(found).all()


@pytest.mark.parametrize("rate", [4000, 8000, 11_025, 22_050, 44_100, 48_000, 192_000])
def test_a_tone_is_the_same_tone_at_any_rate(rate: int) -> None:
    hertz = 0.3 * min(rate, 16_000)
    found = resample(sine(hertz, rate).astype(np.float32), rate, 16_000)
    assert abs(len(found) - 16_000) <= 1
    assert np.abs(found - sine(hertz, 16_000)[: len(found)])[500:-500].max() < 2e-3


@pytest.mark.parametrize("rate", [22_050, 44_100, 48_000, 96_000])
def test_what_a_lower_rate_cannot_hold_is_taken_away(rate: int) -> None:
    found = resample(sine(9500, rate).astype(np.float32), rate, 16_000)
    assert np.abs(found[500:-500]).max() < 1e-3


def test_odd_rates_cost_no_more_than_others() -> None:
    for rate in (191_999, 44_101, 4001):
        samples = np.zeros(rate, np.float32)
        assert abs(len(resample(samples, rate, 16_000)) - 16_000) <= 16


def test_windows_cover_all_of_a_sound_evenly() -> None:
    short, exact, longer = (np.arange(n, dtype=np.float32) for n in (10, 32_000, 70_000))
    (window,) = cut(short, HOW)
    assert window[:10].tolist() == short.tolist() and not window[10:].any()
    assert len(cut(exact, HOW)) == 1
    assert [each[0] for each in cut(longer, HOW)] == [0, 19_000, 38_000]
    assert cut(longer, HOW)[-1][-1] == 69_999


def test_the_longest_sound_has_no_more_windows_at_an_odd_rate() -> None:
    (count,) = {
        to_windows([made(np.zeros(60 * r), rate=r)], HOW)[SHARES].size for r in (4000, 4001)
    }
    assert count == HOW.most_windows


def test_sounds_of_different_lengths_share_a_request() -> None:
    found = to_windows([made(sine(440, 8000, seconds)) for seconds in (1, 5)], HOW)
    assert found[LOG_MEL].shape == (2, 3, HOW.mels, HOW.frames)
    assert found[SHARES] == pytest.approx(np.array([[1, 0, 0], [1 / 3] * 3]))
    assert not found[LOG_MEL][0, 1:].any()
    loudest = found[LOG_MEL][0, 0].mean(axis=1).argmax()
    assert (found[LOG_MEL][1].mean(axis=2).argmax(axis=1) == loudest).all()


def test_many_sounds_in_one_request_are_bounded_together() -> None:
    minute = made(np.zeros(60 * 4000), 1, 8, rate=4000)
    assert len(to_windows([minute] * 2, HOW)[LOG_MEL]) == 2
    with pytest.raises(SoundError, match=r"take 660 s together, .* the limit is 600 s"):
        to_windows([minute] * 11, HOW)
    moment = made(np.zeros(4000), 1, 8, rate=4000)
    with pytest.raises(SoundError, match="take 660 s together, each as long as the longest"):
        to_windows([minute] + [moment] * 10, HOW)


def test_drawn_sounds_are_all_different_and_the_same_again(tmp_path: Path) -> None:
    some, again, others = (drawings.one_of_each(seed=seed) for seed in (0, 0, 1))
    assert some == again and tuple(some) == NAMES
    assert len({*some.values(), *others.values()}) == 2 * len(NAMES)
    drawings.main(tmp_path)
    assert len(wav.read((tmp_path / "bell.wav").read_bytes(), 60).samples) == 2 * drawings.RATE
    heard, labels = drawings.many(HOW, 16)
    assert heard.shape == (16, HOW.mels, HOW.frames) and np.isfinite(heard).all()
    assert np.bincount(labels).tolist() == [2] * len(NAMES)


def test_the_warmup_sound_is_a_bell_of_a_second() -> None:
    assert len(wav.read(BELL.read_bytes(), 60).samples) == 8000


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no weights file") as refused:
        Listener(str(tmp_path / "street.pth"), {}).identity()
    assert "SOUNDS=drawn" in refused.value.remedy


def test_what_sound_may_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no sound given") as refused:
        asking.find_sources("", "classify MODEL=sounds", "SOUND")
    assert "MODEL=sounds SOUND=bell.wav" in refused.value.remedy
    with pytest.raises(UserError, match=r"SOUND=.*\*.wav matches no file"):
        asking.find_sources(f"{tmp_path}/*.wav", setting="SOUND")
