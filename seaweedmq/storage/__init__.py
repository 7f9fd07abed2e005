"""Shared storage: segment files on a directory or in memory. Knows no brokers and no metadata."""
