"""Why there is no figure."""


class Missing(Exception):
    """A system can not take part on this machine; the message says what it lacks."""


class Failed(Exception):
    """A server or a client did not do what it should; the message is what it said."""


class Unacknowledged(Exception):
    """Records were published and the server did not say that it has them."""
