"""Conversion of records from and to text and files: CSV, JSON lines, Parquet, schemas.

Imports no other folder of the command line.
"""
