"""A member of a consumer group.

``subscriber`` is the public class, with its ``options``. It is a ``member_reader``, which reads the segments that
``membership`` receives over ``member_stream`` from the coordinator while its ``assignment_lease`` is valid.
``dispatcher`` delivers records, to iteration or to ``handler_runner``, and ``origin`` carries their acknowledgements.
``dead_letter`` publishes dead letters, and ``completion`` reports when the group has read all records. The decisions
are in ``core.member``. Imports ``cluster``, ``publish`` (dead letters) and ``subscribe``.
"""
