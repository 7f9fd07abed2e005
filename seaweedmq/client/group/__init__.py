"""A member of a consumer group: ``subscriber`` (what users call) reads what ``membership`` is given over the ``stream``
to the coordinator, as long as it has ``contact``. ``dispatcher`` hands out, to iteration or to ``handlers``; what is
given up goes to ``dead_letter``, and ``finish`` sees when the group has read all. What is decided is in
``core.member``. Imports ``cluster``, ``publish`` (dead letters) and ``subscribe``.
"""
