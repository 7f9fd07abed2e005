"""Implementation of ``ports.SegmentStore`` on an object store."""
