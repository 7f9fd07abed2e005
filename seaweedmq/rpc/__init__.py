"""The gRPC protocol between clients and brokers.

Each .proto has one module, ``admin.proto`` has two: ``topics`` and ``admin``. Generated stubs never leave this package.

``serve`` serves a ``BrokerApi`` on a port; ``GrpcDialer`` returns the ``BrokerApi`` of an address. ``methods`` lists
the unary calls, ``frames`` is the hot path, ``status`` translates errors.
"""
