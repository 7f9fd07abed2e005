"""The client's view of the cluster.

``cluster`` finds brokers and calls them, ``topic_view`` caches one topic, ``topic_updates`` keeps caches current, and
``broker_stream`` is one stream with one broker. Imports only ``config`` and ``retry`` of the client.
"""
