"""Measurements, each beside a yardstick of the same run: ``python -m benchmarks``. How to read them: README.md."""
