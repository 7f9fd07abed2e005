"""The sink: batches and streams from Spark into a topic."""
