"""Drain of a broker: its segments move to others before it stops, or on request."""

from collections.abc import Callable

from seaweedmq.broker.incarnation import Incarnation
from seaweedmq.broker.membership import Membership
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.calls import DrainBroker
from seaweedmq.ports import Dialer


class Drainer:
    """The drainer of this broker. It forwards requests about other brokers."""

    def __init__(
        self,
        *,
        view: ClusterView,
        dialer: Dialer,
        membership: Membership,
        member: Callable[[], Incarnation],
        address: str,
    ) -> None:
        """Create the drainer; ``member`` returns the present incarnation, or raises Unavailable."""
        self._view = view
        self._dialer = dialer
        self._membership = membership
        self._member = member
        self._address = address

    @property
    def broker_id(self) -> str:
        """Id of this broker; "" while it has none."""
        return self._membership.incarnation.id if self._membership.incarnation else ""

    async def drain_named(self, broker: str) -> None:
        """Drain the broker with this id or address. Raises NotFound if it is not registered, and as :meth:`drain`."""
        named = self._view.broker_named(broker)
        if named.id == self.broker_id:
            await self.drain()
        else:
            await self._dialer.dial(named.address).forwarded.call(DrainBroker(named.id))

    async def drain(self) -> None:
        """Drain this broker; return once it holds no segment. Raises InvalidArgument if no other one can take them."""
        if not self._others_stay():
            raise InvalidArgument(
                f"{self._address} is the last broker that is not being drained: add another one first"
            )
        await self.leave_segments(self._member())

    async def leave_segments(self, incarnation: Incarnation) -> None:
        """Announce the drain, and wait until the leader has moved all segments away.

        The wait ends early if the lease is lost and the broker does not register again.
        """
        await self._membership.announce_draining()
        while (
            not (incarnation.is_over and self._membership.retiring)
            and self._others_stay()
            and any(
                incarnation.id in segment.replicas
                for segments in self._view.open_segments.values()
                for segment in segments.values()
            )
        ):
            await self._view.wait_change(self._view.changes)

    def _others_stay(self) -> bool:
        return any(b.id != self.broker_id and not b.draining for b in self._view.brokers.values())
