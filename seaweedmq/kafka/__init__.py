"""The Kafka gateway: a listener inside a broker that speaks Kafka's protocol, so that Kafka clients use its topics.

``wire/`` implements the protocol: bytes, versions and error codes. Only ``wire/`` imports kafka-python. ``server.py``
accepts connections, ``dispatch.py`` schedules their requests, ``gateway.py`` assembles both, and the other modules
handle requests, one module for each kind. Of the broker, these
modules import only ``broker.ports`` and ``broker.local``. The package needs the extra ``seaweedmq[kafka]``. Outside it,
only the command line imports it, for a broker that is configured to listen for Kafka clients.
"""
