"""Delta log of a topic: the versions of its live tables, for readers of Delta tables."""
