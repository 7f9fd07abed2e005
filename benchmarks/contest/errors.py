"""Reasons for a missing figure."""


class Missing(Exception):
    """A system cannot take part on this machine; the message names what it lacks."""


class Failed(Exception):
    """A server or a client failed; the message is its output."""


class Unacknowledged(Exception):
    """Records were published without an acknowledgement of the server."""
