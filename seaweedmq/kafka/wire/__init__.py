"""Kafka's protocol: frames on a socket, messages, versions and error codes, independent of topics and brokers.

No other package imports kafka-python.
"""
