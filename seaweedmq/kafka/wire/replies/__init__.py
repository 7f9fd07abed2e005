"""Replies that are encoded here, not by kafka-python."""
