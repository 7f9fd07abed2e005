"""Waits that the session and the election share."""

from collections.abc import AsyncGenerator, AsyncIterator

from seaweedmq.ports import Changes, MetaStore


async def until_deleted(store: MetaStore, key: str, after_revision: int) -> None:
    """Return once ``key`` is deleted after that revision. Errors are those of ``MetaStore.watch``. No deadline."""
    watch = store.watch(key, after_revision + 1)
    try:
        async for changes in watch:
            if key in changes.deletes:  # longer keys with this prefix are reported too
                return
    finally:
        await end_watch(watch)


async def end_watch(watch: AsyncIterator[Changes]) -> None:
    """Close a watch now instead of at its garbage collection."""
    if isinstance(watch, AsyncGenerator):
        await watch.aclose()
