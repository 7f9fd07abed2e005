"""Messages between clients and brokers, as frozen values."""
