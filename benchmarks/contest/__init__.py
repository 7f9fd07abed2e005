"""The contest of ``benchmarks.peers``.

``seaweedmq/``, ``kafka/`` and ``redis/`` each have a server to start and a client with the interface of ``client.py``.
A trial starts one server, suites drive it, and each unit of work is a task in a separate client process. Results are
samples; the table is computed from them alone.
"""
