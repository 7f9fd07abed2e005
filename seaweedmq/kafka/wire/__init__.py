"""Kafka's protocol: frames on a socket, messages, versions, error codes. Knows nothing of topics or brokers.

The only package that imports kafka-python.
"""
