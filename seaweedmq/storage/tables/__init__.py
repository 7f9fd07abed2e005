"""Parquet: written from log files in a process of its own, and read back as frames. Imports ``storage.store`` and
``storage.logs``.
"""
