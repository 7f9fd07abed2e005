"""The clients of all systems, whose libraries are loaded by the processes that use them."""

from benchmarks.contest.client import Client


def client_class(name: str) -> type[Client]:
    """The client of a system. Nothing of the others is loaded."""
    match name:
        case "seaweedmq":
            from benchmarks.contest.seaweedmq.client import SeaweedClient

            return SeaweedClient
        case "kafka":
            from benchmarks.contest.kafka.client import KafkaClient

            return KafkaClient
        case "redis":
            from benchmarks.contest.redis.client import RedisClient

            return RedisClient
    raise ValueError(f"no system is called {name!r}")
