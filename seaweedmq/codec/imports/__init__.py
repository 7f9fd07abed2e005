"""Formats of imported files: CSV and foreign text encodings."""
