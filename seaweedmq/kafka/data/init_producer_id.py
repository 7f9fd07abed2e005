"""InitProducerId: who produces gets an id, so that nothing it repeats is stored twice."""

from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.data.producer_ids import ProducerIds
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.messages import API, Handler, InitProducerIdResponse, Reply, Request

FIRST_EPOCH = 0

NO_PRODUCER = (-1, -1)
"""Id and epoch of a producer that has none yet."""


class InitProducerIdHandlers:
    """Answers InitProducerId. A producer that asks again, as after an error, gets another id."""

    def __init__(self, ids: ProducerIds) -> None:
        self._ids = ids

    def handlers(self) -> dict[int, Handler]:
        """By API key."""
        return {API.INIT_PRODUCER_ID: self.init_producer_id}

    async def init_producer_id(self, request: Request) -> Reply:
        """A new id.

        Raises:
            KafkaRefusal: the producer wants transactions, or says half of who it is; or etcd refuses for now.
            Corrupt, Unsupported, InvalidArgument: as ``ProducerIds.next``.
        """
        transactional = request.body.transactional_id
        if transactional is not None:
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"transactional.id {transactional[:100]!r}: SeaweedMQ has no transactions yet, leave it out",
            )
        who = (request.body.producer_id, request.body.producer_epoch)
        if who != NO_PRODUCER and min(who) < 0:
            raise KafkaError(Code.INVALID_REQUEST, "a producer has an id and an epoch, or neither: give both or none")
        try:
            producer_id = await self._ids.next()
        except SeaweedMQError as error:
            if not error.retryable:
                raise
            # Java's producer repeats the request for this code; it ends with REQUEST_TIMED_OUT, and looks for the
            # coordinator of a transaction that it does not have with the others.
            raise KafkaError(Code.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=Code.NONE, producer_id=producer_id, producer_epoch=FIRST_EPOCH
        )
