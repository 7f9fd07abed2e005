"""The client's view of the cluster: whom to ask, what was said last (``cluster``, ``topic_view``, ``news``), one
``conversation`` with a broker.
Imports no other room of the client, only its ``config`` and ``retry``.
"""
