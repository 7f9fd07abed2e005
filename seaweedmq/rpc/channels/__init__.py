"""Many conversations on one gRPC stream. May import the rest of ``rpc`` but its client and server.

A stream of gRPC costs both sides some milliseconds of Python to open, and each of its messages some tenths of one; a
client has a conversation for each segment it publishes to, a primary one for each segment and follower. Here they are
*channels*, as AMQP calls them, of one stream between two processes: opening one is part of a message, and what all of
them have to say in one turn of the event loop is one message.
"""
