"""``ports.SegmentStore``: on a mounted directory, and in memory. Imports ``storage.logs``."""
