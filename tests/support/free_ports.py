"""Adjacent free ports, for processes that a test starts."""

from seaweedmq.runtime.process.free_ports import ReservedPort

_UNTIL_THE_END: list[ReservedPort] = []


def free_ports(count: int) -> int:
    """Reserve ``count`` adjacent ports until this process ends, and return the first."""
    while True:
        ports = [ReservedPort()]
        try:
            ports += [ReservedPort(ports[0].port + i, is_shared=False) for i in range(1, count)]
        except (OSError, OverflowError):  # an adjacent port is taken, or does not exist
            continue
        _UNTIL_THE_END.extend(ports)
        return ports[0].port
