"""Handler of InitProducerId, which gives idempotent producers the ids that prevent duplicates."""

from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.data.producer_ids import ProducerIds
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.messages import HandlerGroup, InitProducerIdResponse, Reply, Request
from seaweedmq.model.kafka.codes import Code

FIRST_EPOCH = 0

NO_PRODUCER = (-1, -1)
"""Id and epoch in a request of a producer that has none yet."""


class InitProducerIdHandlers(HandlerGroup):
    """Handler of InitProducerId. A producer that repeats the request, as after an error, gets another id."""

    def __init__(self, ids: ProducerIds) -> None:
        self._ids = ids

    async def init_producer_id(self, request: Request) -> Reply:
        """Return a new producer id with epoch 0.

        Raises KafkaError for a transactional id, or only one of id and epoch (INVALID_REQUEST), or if no id is
        available at the moment (COORDINATOR_LOAD_IN_PROGRESS). Other errors of ``ProducerIds.next`` are not remedied by
        a retry.
        """
        transactional = request.body.transactional_id
        if transactional is not None:
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"transactional.id {transactional[:100]!r}: SeaweedMQ has no transactions yet: omit it",
            )
        producer = (request.body.producer_id, request.body.producer_epoch)
        if producer != NO_PRODUCER and min(producer) < 0:
            raise KafkaError(Code.INVALID_REQUEST, "producer has only one of id and epoch: give both or none")
        try:
            producer_id = await self._ids.next()
        except SeaweedMQError as error:
            if not error.retryable:
                raise
            # Java's producer repeats the request after this code. It fails after REQUEST_TIMED_OUT, and after other
            # codes it looks for the coordinator of a transaction that it does not have.
            raise KafkaError(Code.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        return InitProducerIdResponse(error_code=Code.NONE, producer_id=producer_id, producer_epoch=FIRST_EPOCH)
