"""Shared storage of segment files, on a directory or in memory; it depends on neither brokers nor metadata."""
