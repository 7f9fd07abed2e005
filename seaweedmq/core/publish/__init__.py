"""The decisions of a publisher: routes to segments, and the send window of each segment.

``client.publish`` encodes the frames and sends them. Imports no sibling package of ``core``.
"""
