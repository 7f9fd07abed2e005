"""Formats of table metadata: Delta and Iceberg."""
