"""Recovery plans, formatted for the command line."""

from collections.abc import Iterator, Mapping

from seaweedmq.broker.recovery.plan import EtcdCondition, Plan, PlannedTopic
from seaweedmq.cli.fields import Fields, topic_fields
from seaweedmq.cli.output import cell
from seaweedmq.model.topic import TopicName

TOPIC_COLUMNS = [
    "topic",
    "changed",
    "segments",
    "open",
    "new",
    "end_offsets",
    "partitions",
    "replicas",
    "durability",
    "retention_s",
    "retention_bytes",
    "configs",
    "columns",
]
CONDITIONS = {
    EtcdCondition.IN_STEP: "in step: etcd and the storage belong together",
    EtcdCondition.LOST: "lost: etcd is empty",
    EtcdCondition.BEHIND: "behind: etcd is older than the storage, as after a restore",
}


def plan_fields(plan: Plan, ends: Mapping[TopicName, Mapping[int, int | str]], *, is_applied: bool) -> Fields:
    """Return a whole plan as JSON fields."""
    return {
        "state": plan.state.value,
        "cluster": plan.cluster_id,
        "generation": plan.generation,
        "applied": is_applied,
        "topics": [_topic_fields(topic, ends.get(topic.topic.name, {})) for topic in plan.topics],
        "removed": [str(name) for name in plan.removed],
        "groups": [{"topic": str(name), "group": group} for name, group in plan.groups],
        "journal": plan.journal or None,
        "changes": len(plan.changes),
        "brokers": list(plan.brokers),
        "problems": list(plan.problems),
        "notes": list(plan.notes),
    }


def plan_lines(fields: Fields, plan: Plan) -> Fields:
    """Return the fields of a plan that are printed one per line."""
    groups = [f"{group['group']} ({group['topic']})" for group in fields["groups"]]
    return {
        "etcd": CONDITIONS[plan.state],
        "cluster": plan.cluster_id,
        "generation": plan.generation,
        "groups": groups,
        "removed": fields["removed"],
        "changes": fields["changes"],
        "brokers": fields["brokers"],
    }


def plan_row(topic: Fields) -> Fields:
    """Return a topic of a plan as a row of a table."""
    segments = topic["segments"]
    still_open = [segment for segment in segments if segment["state"] == "open"]
    return topic | {
        "segments": len(segments),
        "open": len(still_open),
        "new": sum(segment["new"] for segment in segments),
        "end_offsets": {segment["id"]: segment["end_offset"] for segment in still_open},
    }


def plan_notes(plan: Plan, ends: Mapping[TopicName, Mapping[int, int | str]]) -> Iterator[str]:
    """Yield the lines of a plan for a log."""
    for topic in plan_fields(plan, ends, is_applied=False)["topics"]:
        row = plan_row(topic)
        yield f"topic {row['topic']}: {row['segments']} segments, end offsets {cell(row['end_offsets'])}"
    if plan.groups:
        yield f"groups: {', '.join(f'{group} ({name})' for name, group in plan.groups)}"
    if plan.removed:
        yield f"topics deleted since the backup: {', '.join(map(str, plan.removed))}"
    yield from plan.notes


def _topic_fields(planned: PlannedTopic, ends: Mapping[int, int | str]) -> Fields:
    def end(segment: int) -> int | None:
        found = ends.get(segment)
        return found if isinstance(found, int) else None

    def problem(segment: int) -> str | None:
        found = ends.get(segment)
        return found if isinstance(found, str) else None

    return topic_fields(planned.topic) | {
        "changed": planned.is_changed,
        "low_watermarks": list(planned.topic.low_watermarks),
        "segments": [
            {
                "id": segment.id,
                "slots": [segment.slots.lo, segment.slots.hi],
                "state": segment.state.value,
                "new": segment.id in planned.opened,
                "predecessors": segment.predecessors,
                "start_offset": segment.start_offset,
                "end_offset": end(segment.id),
                "problem": problem(segment.id),
            }
            for segment in planned.segments
        ],
    }
