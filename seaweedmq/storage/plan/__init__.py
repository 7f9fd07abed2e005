"""Scan plans: which files and brokers hold the records of a read."""
