"""Publishing of records and tables.

``publisher`` is the public class. ``buffer`` collects records in a batch, or takes a table, while ``send_room`` has
room. ``outbox`` routes them as rows, encodes them with ``batches``, and owns the send window of each segment, where a
frame stays until it is acknowledged (``core.publish``). ``segment_sender`` sends the frames of a window over a
``publish_stream`` to a broker. ``promise``, ``futures`` and ``receipts`` carry outcomes, ``unsettled_work`` is what
flushes wait for, and ``unreported_errors`` has the failures that no call has reported yet.

``staged_publisher`` publishes a batch that is in files: a ``staged_sender`` for each segment sends its ``staged_rows``
over the same ``publish_stream``. Imports ``cluster``.
"""
