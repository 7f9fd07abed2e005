"""Networks between a client and a bucket in memory."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from seaweedmq.errors import StorageFailed
from tests.doubles.memory_objects import WRITES, MemoryBucket, ObjectAnswer, ObjectRequest


@dataclass(slots=True)
class LateWrites:
    """A network that fails chosen writes and applies them at :meth:`release`."""

    bucket: MemoryBucket
    is_late: Callable[[ObjectRequest], bool] = lambda request: False
    late: list[ObjectRequest] = field(default_factory=list)

    async def carry(self, request: ObjectRequest) -> ObjectAnswer:
        if request.op in WRITES and self.is_late(request):
            self.late.append(request)
            raise StorageFailed(f"no answer to {request.op} {request.key}: retry")
        return self.bucket.apply(request)

    def release(self) -> list[ObjectAnswer]:
        """Apply the late writes, and return their answers."""
        late, self.late = self.late, []
        return [self.bucket.apply(request) for request in late]


def doubled(bucket: MemoryBucket) -> Callable[[ObjectRequest], Awaitable[ObjectAnswer]]:
    """Return a network that loses the answer of each write: the repetition brings its own."""

    async def carry(request: ObjectRequest) -> ObjectAnswer:
        if request.op in WRITES:
            bucket.apply(request)
        return bucket.apply(request)

    return carry
