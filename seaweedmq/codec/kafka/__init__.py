"""Kafka's record batches, version 2: checked, patched, read as columns, and built.

``batch`` is the door for what clients send, ``columns`` for whoever reads, ``build`` for what is sent to Kafka's
clients and did not come from one. All of it stands below ``codec.payload``.
"""
