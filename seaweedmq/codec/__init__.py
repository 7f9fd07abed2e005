"""Bytes <-> values, pure: frames and their payloads, log files, file names, metadata keys and values. One file each."""
