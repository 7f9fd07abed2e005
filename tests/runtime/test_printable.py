"""Names chosen by clients, on a terminal."""

from seaweedmq.runtime.printable import printable


def test_what_moves_the_cursor_or_looks_like_another_line_is_escaped() -> None:
    assert printable("grüße 😀 #1") == "grüße 😀 #1"
    assert printable("a\x1b[31mred\nnext\t\x9b") == "a\\x1b[31mred\\nnext\\t\\x9b"
    assert printable("\u202eback\u2028\ud800") == "\\u202eback\\u2028\\ud800"
    assert printable("a\nb\r", "\n") == "a\nb\\r"
