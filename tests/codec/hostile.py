"""Attack of the frame check with mutated frames, until it accepts a bad one, raises a wrong error or crashes.

``test_hostile_frames`` runs it in a separate process: ``python -m tests.codec.hostile --seed S --rounds N``. Accepted
frames are used as the system uses them: decoded, completed, written as Parquet.
"""

import argparse
import faulthandler
import io
import random
import resource
import struct
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from seaweedmq.codec.frame import FrameHeader, split_frames
from seaweedmq.codec.payload.batch import decode_frame, full_batch, schema_from_bytes, schema_to_bytes, validate_payload
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from tests.codec.samples import NESTED_SCHEMA, WIDE_SCHEMA, Sample, samples, with_payload

REFUSALS = (InvalidArgument, Corrupt, Unsupported)
INTERESTING = (0, 1, 2, 3, 4, 7, 8, 15, 16, 64, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
INTERESTING_64 = (*INTERESTING, 2**40, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 8, 2**64 - 1)
MEMORY_BYTES_MAX = 4 * 1024**3
HEADER_FIELDS = {"flags": 16, "record_count": 32, "timestamp_min": 63, "timestamp_max": 63}
HEADER_FIELDS |= {"slot_min": 16, "slot_max": 16, "encoding": 8}


def mutate(rng: random.Random, payload: bytes) -> bytes:
    """Insert one to four small errors, most of them in the metadata, where few bytes decide much."""
    data = bytearray(payload)
    metadata_end = 8 + struct.unpack_from("<i", payload, 4)[0]
    for _ in range(rng.randint(1, 4)):
        end = metadata_end if rng.random() < 0.7 else len(data)
        kind = rng.random()
        if len(data) < 16:
            return bytes(data)
        end = min(end, len(data))
        if kind < 0.3:
            data[rng.randrange(end)] = rng.randrange(256)
        elif kind < 0.5:
            at = rng.randrange(0, max(end - 4, 1), 4)
            struct.pack_into("<I", data, at, rng.choice(INTERESTING))
        elif kind < 0.7:
            at = rng.randrange(0, max(end - 8, 1), 8 if rng.random() < 0.5 else 4)
            if at + 8 <= len(data):
                struct.pack_into("<Q", data, at, rng.choice(INTERESTING_64))
        elif kind < 0.8:
            at = rng.randrange(0, max(end - 4, 1), 4)
            value = (struct.unpack_from("<I", data, at)[0] + rng.randint(-16, 16)) % 2**32
            struct.pack_into("<I", data, at, value)
        elif kind < 0.88:
            a, b, n = rng.randrange(end), rng.randrange(end), rng.choice((2, 4, 8, 16, 24))
            data[b : b + n] = data[a : a + n]
        elif kind < 0.92:
            del data[rng.randrange(1, len(data)) :]
        elif kind < 0.96:
            data += rng.randbytes(rng.choice((1, 7, 8, 64)))
        else:
            at = rng.randrange(end)
            data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


def mutate_header(rng: random.Random, header: FrameHeader) -> dict[str, int]:
    """Sometimes corrupt a header field also; a record count that fits a mutated batch gets that batch further."""
    if rng.random() < 0.6:
        return {}
    name = rng.choice(list(HEADER_FIELDS))
    value = rng.choice((rng.choice(INTERESTING_64), getattr(header, name) + rng.randint(-3, 3)))
    return {name: value % 2 ** HEADER_FIELDS[name]}


def use(sample: Sample, data: bytes) -> bool:
    """Return whether the check accepts the frames. Accepted frames must be usable."""
    try:
        frames = list(split_frames(data))
        for frame in frames:
            validate_payload(frame.header, frame.payload, sample.topic_schema)
    except REFUSALS:
        return False
    for frame in frames:
        batch = full_batch(decode_frame(frame, sample.topic_schema), frame.header, sample.topic_schema)
        batch.validate(full=True)
        assert batch.num_rows == frame.header.record_count
        assert batch.nbytes <= 64 * batch.num_rows + len(data), "the columns are much larger than the input"
        if sample.topic_schema is None:
            batch.to_pylist()
        file = io.BytesIO()
        pq.write_table(pa.Table.from_batches([batch]), file, compression="zstd")
        assert pq.read_table(file).num_rows == batch.num_rows
    return True


def attack_frames(rng: random.Random, rounds: int) -> tuple[int, int]:
    """Return the numbers of frames sent and accepted."""
    known = samples()
    let_in = 0
    for sample in known:
        assert use(sample, sample.frame_bytes), f"{sample.name}: a valid frame is rejected"
    for _ in range(rounds):
        sample = rng.choice(known)
        frame = sample.frame
        let_in += use(
            sample, with_payload(frame, mutate(rng, bytes(frame.payload)), **mutate_header(rng, frame.header))
        )
    return rounds, let_in


def attack_schemas(rng: random.Random, rounds: int) -> tuple[int, int]:
    """Mutate the schema that a client sends with a new topic."""
    known = [schema_to_bytes(schema) for schema in (WIDE_SCHEMA, NESTED_SCHEMA)]
    let_in = 0
    for _ in range(rounds):
        try:
            schema = schema_from_bytes(mutate(rng, rng.choice(known)))
        except REFUSALS:
            continue
        let_in += 1
        assert schema_from_bytes(schema_to_bytes(schema)) == schema
        file = io.BytesIO()
        pq.write_table(schema.empty_table(), file)
        assert pq.read_schema(file).names == schema.names
    return rounds, let_in


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=10_000)
    args = parser.parse_args()
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    rng = random.Random(args.seed)
    for name, attack in (("frames", attack_frames), ("schemas", attack_schemas)):
        sent, let_in = attack(rng, args.rounds)
        print(f"{name}: sent {sent}, let in {let_in}", file=sys.stdout)
    print("survived")


if __name__ == "__main__":
    main()
