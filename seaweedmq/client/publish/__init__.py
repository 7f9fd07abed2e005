"""A record's way out: ``publisher`` (what users call), ``buffer`` (a ``batch`` or a table of ``tables``), ``outbox``
(routed as ``rows``, encoded by ``framing``, and in the ``window`` of a segment until it is acknowledged), ``lane`` (the
stream to a broker), ``promise`` and ``sent`` (what became of it). Imports ``client.cluster``.
"""
