"""The Kafka gateway: a listener inside a broker that speaks Kafka's protocol, so that Kafka clients use its topics.

``wire/`` is the protocol: bytes, versions, error codes; the only place that knows kafka-python. ``server.py`` listens,
``dispatch.py`` decides what waits for what, ``gateway.py`` puts it together, and the other modules answer requests, a
module for each kind. Of the broker they know ``broker.local`` alone. All of it needs the extra ``seaweedmq[kafka]``;
nothing outside of this package imports it but the command line, where a broker is told to listen for Kafka.
"""
