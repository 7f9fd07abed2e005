"""Escaping of untrusted text for terminals and logs."""


def printable(text: str, keep: str = "") -> str:
    """The text with all that prints nothing, moves the cursor or changes colors written as an escape.

    Args:
        keep: characters that are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
