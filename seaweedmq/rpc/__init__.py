"""What clients and brokers say to each other, over gRPC: a module for each .proto, but two for ``admin.proto``:
``topics`` and ``admin``. Generated stubs never leave this package.

``serve`` puts a ``BrokerApi`` on a port; ``GrpcDialer`` gives the ``BrokerApi`` of an address. ``methods`` lists the
unary calls, ``frames`` is the hot path, ``status`` translates errors.
"""
