"""Implementation of ``ports.SegmentStore`` on a mounted directory."""
