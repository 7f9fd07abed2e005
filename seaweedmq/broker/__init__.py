"""One broker: shells around the pure core.

A record's way: ``serve`` takes it in, ``segment`` keeps it, ``serve`` gives it out, ``upkeep`` turns it into files
for good; ``memory`` bounds all of it. ``leader`` and ``groups`` work on the broker that leads. Above these rooms:
``term`` (one stay in the cluster), ``membership``, ``api`` (who answers a call), ``inspect`` (what others may look
at), ``broker`` (put together).
"""
