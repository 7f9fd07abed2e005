"""Options of ``df.write.format("seaweedmq")`` and ``df.writeStream``, checked before anything is written."""

from collections.abc import Mapping
from dataclasses import dataclass

from seaweedmq.client.cluster.cluster import parse_bootstrap
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.options import WRITE_ID, SparkApi, check_names, parse_bool

_REQUIRED = (("bootstrap", "127.0.0.1:17777"), ("storage", "/mnt/shared/mq"), ("topic", "shop/orders"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a write."""

    bootstrap: tuple[str, ...]
    """Addresses of brokers, ``host:port``."""
    storage: str
    """Root URI of the storage that the brokers use."""
    topic: TopicName
    key: str | None = None
    """Column that supplies keys; None for ``key`` or ``_key``, if it exists."""
    timestamp: str | None = None
    """Column that supplies timestamps; None for ``timestamp`` or ``_timestamp``, if it exists."""
    repeat_unknown: bool = False
    """Whether rows are published again if it is no longer known whether they were committed."""
    checkpoint: str = ""
    """Location of the query's checkpoint if the query names one; otherwise ""."""
    write_id: str | None = None
    """Id under which a single write is staged; None for a random one."""


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a write; their names are case-insensitive, as in Spark."""
    options = check_names(given, SparkApi.WRITE)
    for name, example in _REQUIRED:
        if not options.get(name):
            raise InvalidArgument(f"option {name!r} is missing: give it like .option({name!r}, {example!r})")
    return SinkOptions(
        bootstrap=parse_bootstrap(options["bootstrap"]),
        storage=options["storage"],
        topic=TopicName.parse(options["topic"]),
        key=options.get("key"),
        timestamp=options.get("timestamp"),
        repeat_unknown=parse_bool(options, "repeatUnknown", default=False),
        checkpoint=_checkpoint(given),
        write_id=options.get(WRITE_ID),
    )


def _checkpoint(given: Mapping[str, str]) -> str:
    location = next((value for name, value in given.items() if name.lower() == "checkpointlocation"), "")
    return location.removeprefix("file://").removeprefix("file:").rstrip("/")
