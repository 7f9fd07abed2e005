"""Spark Declarative Pipeline over the flights: a topic, a streaming table of delays by hour, and a topic of them."""
