"""Kafka's record batches, version 2: checked, patched, read as columns, and built.

``batch`` checks what clients send, ``columns`` reads batches, and ``build`` creates batches for Kafka clients from
other records. Everything here stands below ``codec.payload``.
"""
