"""Streams and questions of clients. Imports ``broker.segment`` and ``broker.memory``."""
