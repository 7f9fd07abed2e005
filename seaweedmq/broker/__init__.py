"""One broker: shells around the pure core.

A record's way: ``serve`` takes it in, ``segment`` keeps it, ``serve`` gives it out, ``upkeep`` turns it into files
for good; ``memory`` bounds all of it. ``leader`` and ``groups`` work on the broker that leads. Above these rooms:
``incarnation`` (one broker id under one lease), ``membership``, ``api`` (calls and their handlers), ``inspect`` (state
for other packages to read), ``broker`` (the assembled broker).
"""
