"""The flights as a Spark Declarative Pipeline: a streaming table over a topic, and a materialized view of it."""
