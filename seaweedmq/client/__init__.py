"""The SDK: an asyncio core (``seaweedmq.aio``) and a synchronous API (``seaweedmq``).

Layers, bottom first: ``cluster``; ``publish`` and ``subscribe``, which are independent; ``group`` and ``admin``;
``opener``, the methods that open publishers and subscribers in both APIs; ``client``, which has all of them;
``blocking``, which wraps ``client`` for threads.
"""
