"""Records in and out as text and files: CSV, JSON lines, Parquet, schemas.
Imports no other room of the command line.
"""
