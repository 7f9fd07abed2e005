"""What all shells share and asyncio lacks: retrying, supervision, signals, notices between threads and the loop,
closing, logging once, the boot clock, free ports, the folder of a local cluster. Imports nothing of
ours but the errors.
"""
