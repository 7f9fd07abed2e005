"""Channels: many bidirectional streams on one gRPC stream.

To open a gRPC stream costs both sides some milliseconds of Python, and each of its messages some tenths of one. A
client needs a stream for each segment it publishes to, a primary one for each segment and follower. These are
*channels* (a term of AMQP) of one stream between two processes. Opening a channel is part of a message, and one message
carries the sections of all channels from one turn of the event loop.

This package may import the rest of ``rpc`` except its client and server.
"""
