"""Measurement of the frames that an error keeps alive."""


def depth(error: BaseException) -> int:
    """Return the number of frames in the traceback, which keeps them and their objects in memory."""
    count, trace = 0, error.__traceback__
    while trace is not None:
        count, trace = count + 1, trace.tb_next
    return count
