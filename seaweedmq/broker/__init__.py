"""The broker: shells around the pure core, in the order of the flow.

``publish`` -> ``segment`` (append, commit) -> ``replicate``, ``follower`` -> ``segment_files`` (write) -> ``flush``
(fsync) -> ``subscribe``. ``maintenance`` turns sealed log files into tables; ``leader`` assigns segments, ``sealer``
ends them; ``server`` puts one broker together.
"""
