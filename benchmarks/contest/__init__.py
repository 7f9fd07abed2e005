"""What ``benchmarks.peers`` is made of.

``seaweedmq/``, ``kafka/`` and ``redis/`` each have a server to start and a client that does what ``client.py`` says. A
trial starts one server, suites say what is done with it, and each piece of work is a task in a client process of its
own. Results are samples; the table is made of them alone.
"""
