"""The synchronous face: the same for threads. Imports everything of the client; nothing imports it."""
