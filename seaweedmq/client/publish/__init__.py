"""A record's way out: ``publisher`` (what users call, with what ``arguments``), ``buffer`` (a ``batch`` or a table of
``tables``), ``outbox`` (routed by ``routing`` as ``rows``, encoded by ``framing``, and in the ``window`` of a segment
until it is acknowledged; ``outgoing`` is what windows answer), ``lane`` (the stream to a broker), ``promise``, ``sent``
and ``receipts`` (what became of it), ``failures`` (what nobody was told yet). Imports ``cluster``.
"""
