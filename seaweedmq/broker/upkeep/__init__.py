"""Background tasks of a broker: maintenance of files, and load reports.

Imports ``broker.segment`` and ``broker.memory``.
"""
