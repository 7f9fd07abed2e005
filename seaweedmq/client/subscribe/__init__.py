"""Reading of records.

A ``reader`` per segment has an ``offset_tracker`` and grants ``receive_credit``; ``assembler`` joins large frames.
``topic_reader`` takes from all readers in turn, ``messages`` converts received rows, and ``iteration`` yields them.
``subscriber`` and ``range_reader`` are the public classes, with their ``options``. Imports ``cluster``.
"""
