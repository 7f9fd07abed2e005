"""The SDK: an asyncio core (``seaweedmq.aio``) and a synchronous API (``seaweedmq``).

Layers, bottom first: ``cluster``; ``publish`` and ``subscribe``, which are independent; ``group`` and ``admin``;
``client``, which opens all of them; ``blocking``, which wraps ``client`` for threads.
"""
