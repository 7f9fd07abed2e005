"""Other brokers by their ids. At one address there is a broker after another, and each is connected to anew."""

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import Unavailable
from seaweedmq.ports import BrokerApi, Dialer


class PeerConnections:
    """Those that this broker speaks to."""

    def __init__(self, view: ClusterView, dialer: Dialer) -> None:
        self._view = view
        self._dialer = dialer
        self._met: set[str] = set()
        """Ids."""

    def dial(self, broker: str) -> BrokerApi:
        """A broker by id.

        Raises:
            Unavailable: it is gone.
        """
        info = self._view.brokers.get(broker)
        if info is None:
            raise Unavailable(f"broker {broker} is gone")
        if broker not in self._met:
            self._met.intersection_update(self._view.brokers)
            self._met.add(broker)
            self._dialer.renew(info.address)
        return self._dialer.dial(info.address)
