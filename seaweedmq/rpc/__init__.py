"""What clients and brokers say to each other, over gRPC. Generated stubs never leave this package.

``serve`` puts a ``BrokerApi`` on a port; ``GrpcDialer`` gives a ``BrokerApi`` for an address. Between them:
``wire`` (stream messages as bytes), ``messages`` (values as protobuf), ``methods`` (unary calls), ``status`` (errors).
"""
