"""Implementations of ``ports.SegmentStore`` on a mounted directory and in memory; they import ``storage.logs``."""
