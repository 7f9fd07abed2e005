r"""Cutter of CSV text into whole rows: a line break inside a quoted text does not end a row.

A text is quoted if it begins with a quotation mark; marks inside it are doubled (RFC 4180). Other programs write
``\"`` for one inside. Such a row is rejected, since half of its text would be taken for data. In a text that does not
begin with a mark, a mark is an ordinary character.
"""

import re
from typing import Final

from seaweedmq.errors import InvalidArgument

ROW_BYTES_MAX: Final = 64 << 20
"""Longest row in bytes. Longer ones are rejected while reading, so that any input takes bounded memory."""
_SCAN_BYTES: Final = 1 << 20
_NEWLINE: Final = rb"\r?\n"
_RETURN: Final = rb"\r"
"""Line end of classic Mac OS."""
_QUOTED: Final = rb'(?<![^%(sep)s\r\n])"[^"]*+(?:""[^"]*+)*+"'
_INSIDE: Final = rb'(?:[^"\r\n]++|' + _QUOTED + rb'(?=[%(sep)s\r\n])|(?<=[^%(sep)s\r\n])")'
_LINE_ENDS: Final = re.compile(rb"\r\n|\r|\n")


class RowCutter:
    """A cutter that turns text into whole rows, linear in a row's length, with one call of ``re`` per piece."""

    def __init__(self, name: str, separator: bytes = b",") -> None:
        """Create a cutter for the input ``name``, for errors, with a separator of one ASCII character."""
        self._name = name
        self._separator = re.escape(separator)
        self._break_by(_NEWLINE)
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._scan_at_bytes = 0
        self._is_first = True
        self.line = 1
        """Number of the first line that has not been returned yet."""

    def _break_by(self, line_end: bytes) -> None:
        fill = {b"sep": self._separator}
        inside = _INSIDE % fill
        self._end = b"\r" if line_end is _RETURN else b"\n"
        self._rows = re.compile(rb"(?:" + inside + rb"*+" + line_end + rb")*+")
        self._row = re.compile(inside + rb"*+" + line_end)
        self._mixed = re.compile(inside + rb"*+(?:\r[^\n]|\n)")
        self._broken = re.compile(rb"(" + inside + rb"*+)" + _QUOTED % fill + rb'(?=[^"%(sep)s\r\n])' % fill)
        self._fields = re.compile(rb"(?:" + _QUOTED % fill + rb"|[^%(sep)s])*+[%(sep)s]" % fill)

    def feed(self, piece: bytes) -> bytes:
        """Take a piece, and return the rows that are now whole.

        Raises InvalidArgument, with the line, if text follows a closing quotation mark, or a row is longer than
        ``ROW_BYTES_MAX``.
        """
        self._rest.append(piece)
        self._rest_bytes += len(piece)
        if self._rest_bytes < self._scan_at_bytes:
            return b""
        return self._cut(b"".join(self._rest))

    def end(self) -> bytes:
        """Return the rows at the end of the input, the last of which needs no line break.

        Raises InvalidArgument as :meth:`feed`, or if a quoted text is not closed.
        """
        text = b"".join(self._rest)
        if not text:
            return b""
        rows = self._cut(text + self._end)
        if self._rest:
            raise InvalidArgument(
                f"{self._name} cannot be read as csv: line {self.line}: a quotation mark in the row that begins there "
                "is not closed: close it, or double it if it is part of the text"
            )
        return rows

    def rows(self, text: bytes) -> list[tuple[int, bytes]]:
        """Return whole rows one by one, each with its position in ``text``."""
        if not self._row.match(text):
            self._break_by(_RETURN)
        return [(found.start(), found[0]) for found in self._row.finditer(text)]

    def _cut(self, text: bytes) -> bytes:
        if self._is_first and self._mixed.match(text) and not self._row.match(text):
            self._break_by(_RETURN)
        found = self._rows.match(text)
        end = 0 if found is None else found.end()
        rows, rest = text[:end], text[end:]
        self._is_first = self._is_first and not rows
        self.line += line_ends(rows)
        if self._mixed.match(rest):
            raise InvalidArgument(
                f"{self._name} cannot be read as csv: line {self.line}: it ends unlike those before it: quote texts "
                "that contain line ends, and end all lines alike"
            )
        broken = self._broken.match(rest)
        if broken is not None:
            raise InvalidArgument(
                f"{self._name} cannot be read as csv: line {self.line + line_ends(broken[0])}, column "
                f"{1 + len(self._fields.findall(broken[1]))}: text follows the closing quotation mark: a mark inside "
                'a quoted text is doubled (""), not \\" (Spark writes it so with option("escape", "\\""))'
            )
        if len(rest) > ROW_BYTES_MAX:
            raise InvalidArgument(
                f"{self._name} cannot be read as csv: the row at line {self.line} is longer than "
                f"{ROW_BYTES_MAX >> 20} MiB: is a quotation mark not closed, or is it the right --format?"
            )
        self._rest = [rest] if rest else []
        self._rest_bytes = len(rest)
        # Scan a long row again only once it has doubled: scanning it at each piece would take quadratic time.
        self._scan_at_bytes = 2 * len(rest) if len(rest) > _SCAN_BYTES else 0
        return rows


def line_ends(text: bytes) -> int:
    """Return the number of line ends in a text."""
    return len(_LINE_ENDS.findall(text)) if b"\r" in text else text.count(b"\n")
