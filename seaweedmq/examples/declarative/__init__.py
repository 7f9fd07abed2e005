"""The flights as a Spark Declarative Pipeline: a topic, a streaming table of delays by hour, and a topic of them."""
