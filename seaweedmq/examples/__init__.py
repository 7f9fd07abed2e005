"""Pipelines on Spark to read, copy and run: ``python -m seaweedmq.examples.NAME --help``.

``publish_flights`` fills a topic for the others; each of them stands on what users import too, and needs nothing of the
others, but for ``declarative``, which is ``flights_streaming`` as a pipeline. ``nyc`` has the data, ``running`` a
session and the command line.
"""
