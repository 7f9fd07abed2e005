"""Commands `seaweedmq blobs ...`: the payloads by reference of a topic, in the storage; no broker is needed."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from seaweedmq.cli.commands.table import SHOWN_MAX, StorageOption, place_of
from seaweedmq.cli.options import Common, TopicArgument, checked_topic, output_option
from seaweedmq.cli.output import EXIT_FAILED, Output, note, progress, say, show_done, show_json, show_rows
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import MIB, US_PER_S
from seaweedmq.model.topic import TopicName

if TYPE_CHECKING:
    from seaweedmq.storage.directory_place import DirectoryPlace

app = typer.Typer(help="Verify and sweep the payloads of records by reference.", no_args_is_help=True)


@app.command()
@output_option
def verify(common: Common, topic: TopicArgument, storage: StorageOption) -> None:
    """Read every payload that a record names; exit with status 1 if one is missing, changed or short."""
    name = checked_topic(topic)
    place = _directory_of(storage, name)
    from seaweedmq.storage.jobs.payloads import verify_payloads

    with progress("MiB") as bars:
        bar = bars.add(f"verify {name}", None)

        def at(done: int, total: int) -> None:
            bar.of(total)
            bar.at(round(done / MIB, 1), position=done)

        found = verify_payloads(place, TopicName.parse(name), progress=at)
    problems = [asdict(problem) for problem in found.problems]
    if common.output is Output.JSON:
        fields = {"topic": name, "records": found.records, "payloads": found.payloads, "bytes": found.bytes}
        show_json({**fields, "is_sound": not problems, "problems": problems})
    elif problems:
        show_rows(problems[:SHOWN_MAX], ["path", "offset", "what"], common.output)
    else:
        say(f"{name} is sound: {found.payloads:,} payloads with {found.bytes:,} bytes are as their records say")
    if problems:
        note(f"error: {len(problems)} of {found.payloads} payloads of {name} are lost, first: {problems[0]['what']}")
        raise typer.Exit(EXIT_FAILED)


@app.command()
@output_option
def sweep(common: Common, topic: TopicArgument, storage: StorageOption) -> None:
    """Delete payloads older than 48 hours that no record names, such as those of interrupted uploads."""
    name = checked_topic(topic)
    place = _directory_of(storage, name)
    from seaweedmq.storage.jobs.payloads import sweep_payloads

    found = sweep_payloads(place, TopicName.parse(name), now_us=int(time.time() * US_PER_S))
    done = f"{name}: {len(found.deleted):,} payloads were deleted; records name {found.named:,}"
    show_done({"topic": name, "deleted": found.deleted, "named": found.named}, done, common.output)


def _directory_of(storage: str, topic: str) -> "DirectoryPlace":
    from seaweedmq.storage.directory_place import DirectoryPlace

    place = place_of(storage, topic)
    if not isinstance(place, DirectoryPlace):
        raise InvalidArgument(f"storage {place} is not a directory: payloads by reference are kept in directories only")
    return place
