"""Memory of all coordinators of a broker: shared by its shards, released when one stops."""

from dataclasses import replace

from seaweedmq.core.kafka.groups.classic_events import CoordinatorLimits
from seaweedmq.core.kafka.groups.state_memory import StateMemory
from tests.core.kafka.group_transcript import LIMITS, Transcript

LARGE = bytes(10_000)


def test_shards_share_the_memory_of_a_broker_and_a_commit_without_room_is_a_shortage_as_well() -> None:
    memory = StateMemory(20_000)
    first, second = Transcript(LIMITS, memory=memory), Transcript(LIMITS, memory=memory)
    first.enters("m", metadata=LARGE)
    assert memory.used == first.shard.size_bytes > len(LARGE)
    assert second.joins("n", metadata=LARGE) == ["n: POLICY_VIOLATION"]
    assert memory.take_shortage()
    assert not memory.take_shortage(), "once"
    first.shard.close()
    assert memory.used == 0
    assert second.joins("n", metadata=LARGE) != ["n: POLICY_VIOLATION"]
    assert not memory.take_shortage()
    memory = StateMemory(6_000)
    transcript = Transcript(LIMITS, memory=memory)
    answer = transcript.commits("a", {("t", number): 1 for number in range(40)}, simple=True)[0]
    assert answer.endswith("POLICY_VIOLATION")
    assert memory.used <= memory.bytes_max
    assert memory.take_shortage()


def test_what_a_shard_loads_counts_above_the_bound_and_small_members_as_what_their_objects_take() -> None:
    memory = StateMemory(1 << 20)
    transcript = Transcript(LIMITS, memory=memory)
    transcript.enters("m", metadata=LARGE)
    transcript.waits(1)
    transcript.syncs("m", m="x")
    memory.bytes_max = 100
    transcript.fails_over()
    assert memory.used == transcript.shard.size_bytes > len(LARGE)
    assert memory.free == 0
    memory = StateMemory(1 << 20)
    transcript = Transcript(replace(CoordinatorLimits(), rebalance_delay_ms=0), memory=memory)
    for number in range(20):
        transcript.enters(f"m{number}")
    assert memory.used >= 3_000 + 20 * 800
