"""A record's way in: one ``reader`` a segment, which has a ``cursor`` and gives ``credit``; ``reading`` takes from all
in turn, ``messages`` hands out what arrived, and ``subscriber`` (what users call) follows the lineage, with its
``options``. Imports ``cluster``.
"""
