"""Loop of the live views, which repeats a query every second until Ctrl-C.

On a terminal each view replaces the last one; in a pipe plain views, or JSON lines, follow one another.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import seaweedmq
from seaweedmq.cli.fields import Fields, cluster_fields, description_fields
from seaweedmq.cli.output import Output, say, show, show_json
from seaweedmq.errors import Unavailable
from seaweedmq.model.broker import Decision
from seaweedmq.model.description import SegmentStats, TopicDescription

if TYPE_CHECKING:
    from rich.console import RenderableType

log = logging.getLogger(__name__)

REFRESH_S = 1.0
BAR_WIDTH_IN_PIPE = 100

T = TypeVar("T")
TopicFacts = tuple[TopicDescription, tuple[SegmentStats, ...], tuple[Decision, ...]]


def cluster(admin: "seaweedmq.Admin", output: Output) -> None:
    """Watch the brokers and the leader's decisions."""
    # Lazy import, as below: commands that read statistics once draw nothing.
    from seaweedmq.cli.live.views import cluster_view

    _watch(admin.cluster_status, lambda status, _: cluster_view(status, _now_us()), cluster_fields, output)


def topic(admin: "seaweedmq.Admin", name: str, output: Output) -> None:
    """Watch the ring of one topic."""
    from seaweedmq.cli.live.views import topic_view

    _watch(
        lambda: read_topic(admin, name),
        lambda facts, width: topic_view(*facts, now_us=_now_us(), width=width),
        lambda facts: description_fields(*facts),
        output,
    )


def read_topic(admin: "seaweedmq.Admin", name: str) -> TopicFacts:
    """Return a topic's description and statistics, and the leader's decisions; raises NotFound."""
    return admin.describe_topic(name), read_stats(admin, name), admin.cluster_status().decisions


def read_stats(admin: "seaweedmq.Admin", name: str) -> tuple[SegmentStats, ...]:
    """Return the statistics of the topic's open segments; none while a primary does not answer."""
    try:
        return admin.topic_stats(name)
    except Unavailable as error:
        log.debug("statistics unavailable: %s: %s", name, error)
        return ()


def _watch(
    read: Callable[[], T], view: Callable[[T, int], "RenderableType"], fields: Callable[[T], Fields], output: Output
) -> None:
    from rich.console import Console
    from rich.live import Live

    try:
        if output is Output.JSON:
            _every_second(lambda: show_json(fields(read())))
        elif sys.stdout.isatty():
            console = Console(highlight=False)
            with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
                _every_second(lambda: live.update(view(read(), console.width), refresh=True))
        else:
            _every_second(lambda: _print_plain(view(read(), BAR_WIDTH_IN_PIPE)))
    except KeyboardInterrupt:
        return  # the regular end of a watch


def _print_plain(view: "RenderableType") -> None:
    show(view)
    say("")


def _every_second(draw: Callable[[], None]) -> None:
    while True:
        draw()
        time.sleep(REFRESH_S)


def _now_us() -> int:
    return time.time_ns() // 1_000
