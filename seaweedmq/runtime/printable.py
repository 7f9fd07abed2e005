"""Escaping of untrusted text for terminals and logs."""


def printable(text: str, keep: str = "") -> str:
    """Return the text with every character escaped that prints nothing, moves the cursor or changes colors.

    Characters of ``keep`` are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
