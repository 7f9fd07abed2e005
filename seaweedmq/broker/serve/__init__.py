"""Streams and queries of clients. Imports ``broker.segment`` and ``broker.memory``."""
