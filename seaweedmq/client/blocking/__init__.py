"""The synchronous API, for threads.

``client``, ``publisher``, ``subscriber`` and ``admin`` have the public classes. ``derive`` makes their methods from the
asyncio ones, and ``background`` is the thread they run in. Imports all other packages of the client; none imports it.
"""
