"""The synchronous face: the same for threads. ``client`` has what users call, ``derive`` makes it of the asyncio
methods, and ``background`` is the thread they run in. Imports all rooms of the client; none imports it.
"""
