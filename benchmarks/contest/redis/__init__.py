"""Redis Streams: one server with an append-only file, and redis-py with hiredis."""
