"""Kafka's APIs for records: Produce, Fetch, ListOffsets, DeleteRecords, InitProducerId."""
