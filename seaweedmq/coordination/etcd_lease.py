"""Renewal of an etcd lease from a thread, over a channel of its own that no event loop drives."""

from typing import Any

import grpc
from aetcd import rpc

from seaweedmq.coordination.etcd import parse_endpoints
from seaweedmq.errors import Unavailable

_CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class EtcdLeaseRenewal:
    """The renewal of leases on etcd endpoints, ``"host:port,host:port"`` (else InvalidArgument), from one thread."""

    def __init__(self, endpoints: str) -> None:
        self._endpoints = parse_endpoints(endpoints)
        self._at = 0
        self._channel: Any = None

    def __call__(self, lease: int, timeout_s: float) -> float:
        """Renew a lease, on the next endpoint after ``timeout_s``; return the seconds it lasts, 0 if it is gone.

        Raises Unavailable if no endpoint answers in time.
        """
        reason = ""
        for _ in self._endpoints:
            try:
                return self._renew(lease, timeout_s)
            except grpc.RpcError as error:
                reason = f"{self._endpoints[self._at]}: {_text(error)}"
                self.close()
                self._at = (self._at + 1) % len(self._endpoints)
        raise Unavailable(f"no etcd endpoint renews the lease, the last one {reason}")

    def close(self) -> None:
        """Close the channel. The next call opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _renew(self, lease: int, timeout_s: float) -> float:
        if self._channel is None:
            self._channel = grpc.insecure_channel(self._endpoints[self._at], options=_CHANNEL_OPTIONS)
        call: Any = rpc.LeaseStub(self._channel).LeaseKeepAlive(
            iter([rpc.LeaseKeepAliveRequest(ID=lease)]), timeout=timeout_s
        )
        try:
            for answer in call:
                return float(answer.TTL)
        finally:
            call.cancel()
        raise Unavailable(f"etcd at {self._endpoints[self._at]} ended a lease renewal without an answer: retry")


def _text(error: grpc.RpcError) -> str:
    details = getattr(error, "details", None)
    return str(details() if details is not None else error)
