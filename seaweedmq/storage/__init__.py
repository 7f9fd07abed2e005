"""Shared storage of segment files, on a mounted directory; it depends on neither brokers nor metadata."""
