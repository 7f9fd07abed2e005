"""What all shells share and asyncio lacks: retrying, supervision, signals, closing. Imports nothing of ours but the
errors.
"""
