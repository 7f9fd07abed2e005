"""Example pipelines on Spark to read, copy and run: ``python -m seaweedmq.examples.NAME --help``.

``publish_flights`` fills a topic for the others. Each of them uses only public modules and none of the other pipelines,
except ``declarative``, which is ``flights_streaming`` as a pipeline. ``nyc`` has the data, ``running`` a session and
the command line.
"""
