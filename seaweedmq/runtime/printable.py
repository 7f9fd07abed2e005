"""Text of strangers as it may be shown on a terminal and in a log."""


def printable(text: str, keep: str = "") -> str:
    """The text with all that prints nothing, moves the cursor or changes colors written as an escape.

    Args:
        keep: characters that stay all the same.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
