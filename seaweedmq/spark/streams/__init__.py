"""The streaming source."""
