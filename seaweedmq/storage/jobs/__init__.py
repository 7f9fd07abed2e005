"""Jobs on all tables of a topic, from its files only: compaction, verification, rebuilding. Blocking.

The parts of a job can run on any machine that has the storage. This package imports the other subpackages of the
storage.
"""
