"""SeaweedMQ: ``seaweedmq up`` with one broker, and the synchronous client."""
