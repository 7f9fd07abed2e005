"""The clients of all systems; each process loads only the library that it uses."""

from benchmarks.contest.client import Client


def client_class(name: str) -> type[Client]:
    """Return the client of a system, without loading the others."""
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
