"""A record's way in: one ``reader`` a segment, which has a ``cursor`` and gives ``credit``; ``reading`` takes from all
in turn, ``messages`` hands out what arrived. Imports ``client.cluster``.
"""
