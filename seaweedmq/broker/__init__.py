"""The broker: shells around the pure core, in the order of the flow.

``publish`` -> ``segment`` (append, write, commit) -> ``flush`` (fsync) -> ``subscribe``; ``maintenance`` turns sealed
log files into tables; ``leader`` assigns and seals segments; ``server`` puts one broker together.
"""
