import io
import json

from rich.console import Console
from rich.text import Text

from bundle_client import Label, PictureRefused, Result, ServerUnreachable
from bundle_client.progress import with_bar
from bundle_client.show import as_error, as_json, as_line, as_summary, as_table

MUG = Result("mug.jpg", (Label(504, "coffee mug", 0.75), Label(968, "cup", 0.001)), 12.34)
REFUSED = Result("no.jpg", error=PictureRefused("not a picture", "send one", "no.jpg"))


def console(**settings: object) -> Console:
    return Console(file=io.TextIOWrapper(io.BytesIO(), "utf-8"), **settings)  # type: ignore[arg-type]


def test_json_of_an_answer() -> None:
    assert json.loads(as_json(MUG)) == {
        "source": "mug.jpg",
        "labels": [
            {"index": 504, "label": "coffee mug", "probability": 0.75},
            {"index": 968, "label": "cup", "probability": 0.001},
        ],
        "ms": 12.3,
    }


def test_json_of_an_error() -> None:
    assert json.loads(as_json(REFUSED)) == {
        "source": "no.jpg",
        "error": {"kind": "PictureRefused", "cause": "not a picture", "remedy": "send one"},
    }


def test_json_is_one_line_of_ascii_whatever_the_names_hold() -> None:
    line = as_json(Result("a\nb\udcff☕.jpg", MUG.labels, 1.0))
    assert line.isascii()
    assert "\n" not in line


def test_table() -> None:
    assert [line.rstrip() for line in as_table(MUG, console()).splitlines()] == [
        "mug.jpg  12 ms",
        "  coffee mug   75.00%  ███████████████",
        "  cup           0.10%",
    ]


def test_table_where_the_terminal_has_no_blocks_to_draw_with() -> None:
    ascii_only = Console(file=io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert "###############" in as_table(MUG, ascii_only)


def test_line() -> None:
    assert as_line(MUG, 10, console()) == "mug.jpg      75.00%     12 ms  coffee mug"


def test_nothing_in_a_name_or_label_is_taken_for_markup() -> None:
    odd = Result("[red]x[/]", (Label(1, "[bold]mug :coffee:", 0.5),), 1.0)
    for text in (as_table(odd, console()), as_line(odd, 1, console())):
        assert "[red]x[/]" in text
        assert "[bold]mug :coffee:" in text


def test_no_terminal_obeys_what_stands_in_a_name_a_label_or_an_error() -> None:
    name, label = "\x1b]0;mine\x07\u202e\n.jpg", "\x1b[31mmug\r\x9b2K 日本 語"
    seen = "\\x1b[31mmug\\r\\x9b2K 日本 語"
    odd = Result(name, (Label(1, label, 0.5),), 1.0)
    for text in (as_table(odd, console()), as_line(odd, 1, console())):
        assert text.startswith("\\x1b]0;mine\\x07\\u202e\\n.jpg") and seen in text
    refused = Result(name, error=PictureRefused(label, "send one", name))
    assert as_error(refused) == f"error: \\x1b]0;mine\\x07\\u202e\\n.jpg: {seen}; send one"


def test_a_line_is_not_broken_by_a_narrow_terminal() -> None:
    long = Result("x" * 100, MUG.labels, 1.0)
    assert "\n" not in as_line(long, 40, console(width=40))


def test_a_narrow_terminal_takes_from_the_bar_and_not_from_the_numbers() -> None:
    assert "75.00%" in as_table(MUG, console(width=24))


def test_colours_only_on_a_terminal() -> None:
    assert "\x1b" not in as_table(MUG, console())
    forced = console(force_terminal=True, color_system="standard")
    assert "\x1b" in as_table(MUG, forced)


def test_a_class_without_a_label_has_its_number() -> None:
    assert "class 7" in as_line(Result("x", (Label(7, "", 0.5),), 1.0), 1, console())


def test_an_error_names_the_picture_or_else_the_server() -> None:
    assert as_error(REFUSED) == "error: no.jpg: not a picture; send one"
    down = ServerUnreachable("localhost:8000: connection refused", "start it")
    assert as_error(Result("mug.jpg", error=down)) == (
        "error: localhost:8000: connection refused; start it"
    )


def test_summary() -> None:
    assert as_summary(8, 2, 0, 4.0) == "8 answered, 2 failed, 2.0 pictures/s"
    assert as_summary(8, 2, 5, 4.0) == "8 answered, 2 failed, 5 left, 2.0 pictures/s"


def test_the_bar_is_gone_while_a_result_is_dealt_with() -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, force_interactive=True, width=80)
    for number, _ in enumerate(with_bar(iter("abc"), 3, terminal)):
        shown, cleared = screen.getvalue().rsplit("pictures/s", 1)
        assert f"{number}/3" in Text.from_ansi(shown).plain
        assert cleared.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # the cursor shown, the line erased
    assert screen.getvalue().endswith("\x1b[2K")


def test_no_bar_where_there_is_no_terminal() -> None:
    no_terminal = Console(file=io.StringIO())
    assert list(with_bar(iter("abc"), 3, no_terminal)) == ["a", "b", "c"]
    assert no_terminal.file.getvalue() == ""  # type: ignore[attr-defined]
