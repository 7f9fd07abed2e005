"""Utilities that asyncio lacks: retries, supervision, signals, notices from threads, closing, logging, clocks, ports.

Imports only the errors from SeaweedMQ.
"""
