"""The SDK: an asyncio core (``seaweedmq.aio``) and a synchronous face (``seaweedmq``).

``publish`` and ``subscribe`` stand beside each other above ``cluster``; ``group`` and ``admin`` are above them,
``client`` hands all of it out, and ``blocking`` wraps it for threads.
"""
