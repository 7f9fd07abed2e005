"""Scans: record batches of planned ranges, from tables, log files and brokers."""
