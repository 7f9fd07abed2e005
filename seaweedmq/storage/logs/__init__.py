"""Scan of log files frame by frame, and distinction of torn tails from damage.

This package imports no other subpackage of the storage.
"""
