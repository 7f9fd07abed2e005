"""Bytes <-> values, pure: frames, log files, file names, schemas, metadata keys and values. One file each; imports the
model and the errors.
"""
