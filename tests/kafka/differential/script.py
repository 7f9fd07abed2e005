"""The scenes of the script, in their order."""

from collections.abc import Awaitable, Callable, Mapping

from tests.kafka.differential.messages import Names
from tests.kafka.differential.play import Answers, Play, playing
from tests.kafka.differential.scenes import cluster, commits, configs, fetch, groups, odd, offsets, produce, topics

Scene = Callable[[Play], Awaitable[None]]
AGO_MS = 3_600_000
"""Age of the script's beginning when it is played: no time in it is in the future, nor old."""

SCENES: Mapping[str, Scene] = {
    **cluster.SCENES, **topics.SCENES, **configs.SCENES, **produce.SCENES, **fetch.SCENES, **offsets.SCENES,
    **groups.SCENES, **commits.SCENES, **odd.SCENES,
}  # fmt: skip


async def answers(port: int, node_id: int, title: str, now_ms: int) -> Answers:
    names = Names(now_ms - AGO_MS)
    names.node_id = node_id
    async with playing(port, title, names) as play:
        await SCENES[title](play)
    return play.answers
