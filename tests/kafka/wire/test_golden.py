"""Golden bytes of versions that Kafka 4 has removed and old clients use: no other implementation at hand has them."""

from seaweedmq.kafka.wire.messages import API, REQUESTS, CreateTopicsResponse, DeleteTopicsResponse, ProduceResponse
from seaweedmq.kafka.wire.versions import ADVERTISED, DOCUMENT, document
from tests.support.kafka_wire import decode

ORDERS = b"\0\x06orders"


def test_create_topics_0_and_1() -> None:
    one = b"\0\0\0\x01" + ORDERS + b"\0\0\0\x04" + b"\0\x03" + b"\0\0\0\0" + b"\0\0\0\0" + b"\0\0\x75\x30"
    first = decode(REQUESTS[API.CREATE_TOPICS], 0, memoryview(one))
    topic = first.topics[0]
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("orders", 4, 3)
    assert (first.timeout_ms, first.validate_only) == (30_000, False)
    assert decode(REQUESTS[API.CREATE_TOPICS], 1, memoryview(one + b"\x01")).validate_only
    made = CreateTopicsResponse.CreatableTopicResult(name="orders", error_code=36, error_message="it is there")
    reply = CreateTopicsResponse(topics=[made])
    assert bytes(reply.encode(version=0)) == b"\0\0\0\x01" + ORDERS + b"\0\x24"
    assert bytes(reply.encode(version=1)) == b"\0\0\0\x01" + ORDERS + b"\0\x24" + b"\0\x0bit is there"


def test_delete_topics_0() -> None:
    found = decode(REQUESTS[API.DELETE_TOPICS], 0, memoryview(b"\0\0\0\x01" + ORDERS + b"\0\0\x75\x30"))
    assert (found.topic_names, found.timeout_ms) == (["orders"], 30_000)
    gone = DeleteTopicsResponse.DeletableTopicResult(name="orders", error_code=3)
    assert bytes(DeleteTopicsResponse(responses=[gone]).encode(version=0)) == b"\0\0\0\x01" + ORDERS + b"\0\x03"


def test_produce_0_to_2() -> None:
    partition = b"\0\0\0\x01" + b"\0\0\0\x05" + b"\0\0\0\x03abc"
    asked = b"\xff\xff" + b"\0\0\x75\x30" + b"\0\0\0\x01" + ORDERS + partition
    topics = ProduceResponse.TopicProduceResponse
    none, there = b"\xff" * 8, b"\0\0\0\x01" + ORDERS + b"\0\0\0\x01" + b"\0\0\0\x05" + b"\0\x23"
    for version, said in ((0, there + none), (1, there + none + bytes(4)), (2, there + none + none + bytes(4))):
        found = decode(REQUESTS[API.PRODUCE], version, memoryview(asked))
        one = found.topic_data[0].partition_data[0]
        assert (found.acks, found.topic_data[0].name, one.index, bytes(one.records)) == (-1, "orders", 5, b"abc")
        refused = topics.PartitionProduceResponse(version=version, index=5, error_code=35, base_offset=-1)
        reply = ProduceResponse(
            version=version, responses=[topics(version=version, name="orders", partition_responses=[refused])]
        )
        assert bytes(reply.encode()) == said


def test_the_document_of_the_apis_is_fresh() -> None:
    assert DOCUMENT.read_text() == document(), "run python -m seaweedmq.kafka.wire.versions"
    assert document().count("\n| ") == 1 + len(ADVERTISED)
    assert "\n| 2 | ListOffsets | 1-10 |" in document()
