"""Sequences of bundles in an object store: access to their entries, the fence of a dead broker, and its recovery.

``core.segment`` has the rules, as actions; this package performs them with ``ports.Objects``.
"""
