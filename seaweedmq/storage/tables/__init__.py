"""Parquet tables: written from log files in a separate process, and read back as frames."""
