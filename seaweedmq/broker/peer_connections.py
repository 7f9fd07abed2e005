"""Connections to other brokers by id.

An address may belong to one broker after another; each id gets a new connection.
"""

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import Unavailable
from seaweedmq.ports import BrokerApi, Dialer


class PeerConnections:
    """The connections of this broker to others."""

    def __init__(self, view: ClusterView, dialer: Dialer) -> None:
        self._view = view
        self._dialer = dialer
        self._dialed: set[str] = set()
        """Ids of the brokers dialed so far."""

    def dial(self, broker: str) -> BrokerApi:
        """Return a connection to a broker by id; raise Unavailable if it is not registered."""
        info = self._view.brokers.get(broker)
        if info is None:
            raise Unavailable(f"broker {broker} is not registered: retry")
        if broker not in self._dialed:
            self._dialed.intersection_update(self._view.brokers)
            self._dialed.add(broker)
            self._dialer.renew(info.address)
        return self._dialer.dial(info.address)
