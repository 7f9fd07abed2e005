"""Kafka's APIs about records: Produce, Fetch, ListOffsets, DeleteRecords, InitProducerId."""
