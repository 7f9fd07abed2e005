"""A record's way out: buffer, rows, frames, routes, one lane a segment, receipts. Imports ``client.cluster``."""
