"""Catch-up reads and recovery from logs and tables."""
