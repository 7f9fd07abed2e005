"""Publishing of records and tables.

``publisher`` is the public class; ``arguments`` checks its input. ``buffer`` collects records in a ``batch``, or takes
a table from ``tables``. ``outbox`` routes them (``routing``) as ``rows``, and encodes them (``framing``) into an
``outgoing_frame``, which stays in the ``send_window`` of a segment until it is acknowledged. ``segment_sender`` is the
stream to a broker. ``promise``, ``futures`` and ``receipts`` carry outcomes, ``unreported_errors`` the failures that no
call has reported yet. ``staged_publisher`` publishes the ``staged_rows`` of a batch that is in files. Imports
``cluster``.
"""
