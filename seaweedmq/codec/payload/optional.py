"""Encodings whose libraries may not be installed; they are imported at the first frame of the encoding."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from seaweedmq.errors import Unsupported


def of_kafka(name: str) -> Callable[..., Any]:
    """Return a function of the Kafka encoding, see ``batch.Encoding``; it raises Unsupported without the libraries."""

    def call(*arguments: Any) -> Any:
        return getattr(_kafka(), name)(*arguments)

    return call


def _kafka() -> ModuleType:
    try:
        from seaweedmq.codec.payload import kafka
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"a frame holds a record batch of a Kafka client, and {error.name} is not installed: pip install "
            '"seaweedmq[kafka]"'
        ) from error
    return kafka
