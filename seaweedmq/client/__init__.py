"""The SDK: admin, publisher and subscriber. An asyncio core (``seaweedmq.aio``) and a synchronous face (``seaweedmq``).

A record's way out: ``buffer`` (send) -> ``records``/``tables`` (Arrow) -> ``framing`` (slots, frames) -> ``routing`` ->
``window`` and ``lane`` (one stream a segment) -> ``delivery`` (receipts). Its way in: ``reader`` (one stream a segment)
-> ``inbox`` (bounded, fair) -> ``messages``.
"""
