"""Real clients of the listener, with a broker that is one list of batches."""

import asyncio
import struct
from collections.abc import Awaitable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from seaweedmq.kafka.gateway import versions_reply
from seaweedmq.kafka.wire.messages import (
    API,
    UUID,
    ApiVersionsResponse,
    FindCoordinatorResponse,
    InitProducerIdResponse,
    ListOffsetsResponse,
    MetadataResponse,
    ProduceResponse,
    Reply,
    Request,
)
from seaweedmq.kafka.wire.replies.fetch_reply import FetchedPartition, FetchedTopic, fetch_reply
from tests.kafka.wire.script import listening

TOPIC_ID = UUID(int=7)
TIMEOUT_S = 30.0


class OneLog:
    """One topic of one partition, in a list. It records the versions that clients chose."""

    def __init__(self) -> None:
        self.port = 0
        self.batches: list[tuple[int, bytes]] = []
        self.end = 0
        self.versions: dict[int, set[int]] = {}

    def handlers(self) -> dict[int, object]:
        handlers = {
            API.API_VERSIONS: self.api_versions,
            API.METADATA: self.metadata,
            API.FIND_COORDINATOR: self.coordinator,
            API.INIT_PRODUCER_ID: self.producer_id,
            API.PRODUCE: self.produce,
            API.FETCH: self.fetch,
            API.LIST_OFFSETS: self.offsets,
        }
        return {int(api): self.noted(handler) for api, handler in handlers.items()}

    def noted(self, handler):
        async def handle(request: Request) -> Reply:
            self.versions.setdefault(request.api, set()).add(request.version)
            return await handler(request)

        return handle

    async def api_versions(self, request: Request) -> ApiVersionsResponse:
        return versions_reply(request)

    async def metadata(self, request: Request) -> Reply:
        v = request.version
        topic = MetadataResponse.MetadataResponseTopic
        partition = topic.MetadataResponsePartition(
            version=v, error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        if v >= 7:
            partition.leader_epoch = 0
        one = topic(version=v, error_code=0, name="orders", partitions=[partition])
        if v >= 10:
            one.topic_id = TOPIC_ID
        broker = MetadataResponse.MetadataResponseBroker(version=v, node_id=1, host="127.0.0.1", port=self.port)
        return MetadataResponse(version=v, brokers=[broker], topics=[one])

    async def coordinator(self, request: Request) -> Reply:
        """librdkafka sends this although it reads without a group."""
        assert request.version < 4
        return FindCoordinatorResponse(
            version=request.version, error_code=0, node_id=1, host="127.0.0.1", port=self.port
        )

    async def producer_id(self, request: Request) -> Reply:
        return InitProducerIdResponse(version=request.version, error_code=0, producer_id=1_000, producer_epoch=0)

    async def produce(self, request: Request) -> Awaitable[Reply]:
        v = request.version
        topic = request.body.topic_data[0]
        batch = bytes(topic.partition_data[0].records)
        base = self.end
        self.end += struct.unpack_from(">i", batch, 57)[0]
        self.batches.append((base, struct.pack(">q", base) + batch[8:]))
        of_topic = ProduceResponse.TopicProduceResponse
        said = of_topic(
            version=v,
            partition_responses=[of_topic.PartitionProduceResponse(version=v, index=0, error_code=0, base_offset=base)],
        )
        if v >= 13:
            said.topic_id = topic.topic_id
        else:
            said.name = topic.name

        async def committed() -> Reply:
            return ProduceResponse(version=v, responses=[said])

        return committed()

    async def fetch(self, request: Request) -> Reply:
        topics = []
        for topic in request.body.topics:
            offset = topic.partitions[0].fetch_offset
            records = [batch for base, batch in self.batches if base >= offset]
            part = FetchedPartition(
                index=0, high_watermark=self.end, last_stable_offset=self.end, log_start_offset=0, records=records
            )
            topics.append(FetchedTopic(name="orders", topic_id=TOPIC_ID.bytes, partitions=[part]))
        if not any(one.records for topic in topics for one in topic.partitions):
            await asyncio.sleep(0.05)
        return fetch_reply(request.version, topics)

    async def offsets(self, request: Request) -> Reply:
        v = request.version
        of_topic = ListOffsetsResponse.ListOffsetsTopicResponse
        asked = request.body.topics[0].partitions[0].timestamp
        part = of_topic.ListOffsetsPartitionResponse(
            version=v, partition_index=0, error_code=0, timestamp=-1, offset=0 if asked == -2 else self.end
        )
        return ListOffsetsResponse(version=v, topics=[of_topic(version=v, name="orders", partitions=[part])])


async def test_librdkafka_publishes_and_reads() -> None:
    log = OneLog()
    async with listening(log.handlers()) as (_, log.port):
        read = await asyncio.to_thread(librdkafka, log.port)
    assert read == [b"%d" % i for i in range(1_000)]
    assert max(log.versions[API.PRODUCE]) >= 9
    assert max(log.versions[API.FETCH]) >= 12


def librdkafka(port: int) -> list[bytes]:
    where = {"bootstrap.servers": f"127.0.0.1:{port}"}
    producer = Producer({**where, "enable.idempotence": True, "linger.ms": 2})
    for i in range(1_000):
        producer.produce("orders", b"%d" % i)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**where, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([Partition("orders", 0, 0)])
    found: list[bytes] = []
    while len(found) < 1_000:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    return found


async def test_kafka_python_publishes_and_reads() -> None:
    log = OneLog()
    async with listening(log.handlers()) as (_, log.port):
        read = await asyncio.to_thread(kafka_python, log.port)
    assert read == [b"%d" % i for i in range(300)]


def kafka_python(port: int) -> list[bytes]:
    where = f"127.0.0.1:{port}"
    producer = KafkaProducer(bootstrap_servers=where)
    for i in range(300):
        producer.send("orders", b"%d" % i, partition=0)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=where, group_id=None, consumer_timeout_ms=int(TIMEOUT_S * 1_000))
    consumer.assign([PythonPartition("orders", 0)])
    consumer.seek(PythonPartition("orders", 0), 0)
    found = [next(consumer).value for _ in range(300)]
    consumer.close()
    return found


async def test_aiokafka_publishes_and_reads() -> None:
    log = OneLog()
    async with listening(log.handlers()) as (_, log.port), asyncio.timeout(TIMEOUT_S):
        where = f"127.0.0.1:{log.port}"
        async with AIOKafkaProducer(bootstrap_servers=where, enable_idempotence=True) as producer:
            sent = [await producer.send("orders", b"%d" % i, partition=0) for i in range(300)]
            await asyncio.gather(*sent)
        consumer = AIOKafkaConsumer(bootstrap_servers=where, group_id=None)
        await consumer.start()
        consumer.assign([TopicPartition("orders", 0)])
        await consumer.seek_to_beginning()
        found = [(await consumer.getone()).value for _ in range(300)]
        await consumer.stop()
    assert found == [b"%d" % i for i in range(300)]
