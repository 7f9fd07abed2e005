"""A broker's segments move away before it goes, because somebody asks for it or because it is stopped."""

from collections.abc import Callable

from seaweedmq.broker.incarnation import Incarnation
from seaweedmq.broker.membership import Membership
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.calls import DrainBroker
from seaweedmq.ports import Dialer


class Drainer:
    """Of this broker, or by passing it on to the one that is named."""

    def __init__(
        self,
        *,
        view: ClusterView,
        dialer: Dialer,
        membership: Membership,
        member: Callable[[], Incarnation],
        address: str,
    ) -> None:
        """``member`` gives the present term, or raises Unavailable."""
        self._view = view
        self._dialer = dialer
        self._membership = membership
        self._member = member
        self._address = address

    @property
    def broker_id(self) -> str:
        """Of this broker; "" while it has none."""
        return self._membership.incarnation.id if self._membership.incarnation else ""

    async def drain_named(self, broker: str) -> None:
        """Have the broker with this id or address drain itself. NotFound; InvalidArgument: it is the last one."""
        named = self._view.broker_named(broker)
        if named.id == self.broker_id:
            await self.drain()
        else:
            await self._dialer.dial(named.address).forwarded.call(DrainBroker(named.id))

    async def drain(self) -> None:
        """Return when this broker holds no segment. InvalidArgument: there is no other to take them."""
        if not self._others_stay():
            raise InvalidArgument(
                f"{self._address} is the last broker that is not being drained: add another one first"
            )
        await self.leave_segments(self._member())

    async def leave_segments(self, incarnation: Incarnation) -> None:
        """Say that this broker is leaving, and wait until the leader has moved everything away; if the lease is lost
        meanwhile and nobody comes back, there is nothing left to wait for."""
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
