"""Catch-up reads and recovery from logs and tables; they import ``storage.logs`` and ``storage.tables``."""
