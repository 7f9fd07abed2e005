"""Catch-up and recovery: logs and tables read together. Imports ``storage.logs`` and ``storage.tables``."""
