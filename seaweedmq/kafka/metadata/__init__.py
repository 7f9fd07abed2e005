"""Kafka's view of the cluster: Metadata and DescribeCluster, topics with their partitions, brokers as nodes."""
