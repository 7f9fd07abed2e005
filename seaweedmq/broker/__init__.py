"""One broker: shells around the pure core.

A record's path: ``serve`` receives it, ``segment`` stores it, ``serve`` delivers it, ``upkeep`` turns it into permanent
files; ``memory`` bounds all of it. ``leader`` and ``groups`` work on the broker that leads. Above these subpackages:
``incarnation`` (one broker id under one lease), ``membership``, ``api`` (calls and their handlers), ``inspect`` (state
for other packages to read), ``broker`` (the assembled broker).
"""
