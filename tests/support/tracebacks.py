"""What an error drags along."""


def depth(error: BaseException) -> int:
    """Frames in its traceback, which it keeps alive with all that they refer to."""
    count, trace = 0, error.__traceback__
    while trace is not None:
        count, trace = count + 1, trace.tb_next
    return count
