"""`seaweedmq up`: starts everything, stops everything, and resumes on a restart."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from seaweedmq.runtime.process.free_ports import free_ports
from tests.support.commands import run, running_cluster

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_of_it_and_a_restart_serves_what_was_stored(tmp_path: Path, number: signal.Signals) -> None:
    with running_cluster(tmp_path / "data", brokers=2) as cluster:
        cluster.ok("topic", "create", "test/kept", "--segments", "2")
        cluster.ok("publish", "test/kept", stdin=b"a\nb\nc\n")
        assert cluster.stop(number) == 0
    with running_cluster(tmp_path / "data", brokers=2) as cluster:
        assert sorted(cluster.ok("subscribe", "test/kept", "--format", "raw").split()) == ["a", "b", "c"]
        cluster.ok("publish", "test/kept", stdin=b"d\n")
        assert sorted(cluster.ok("subscribe", "test/kept", "--format", "raw").split()) == ["a", "b", "c", "d"]


def test_an_etcd_that_lost_its_data_is_recovered_from_the_storage(tmp_path: Path) -> None:
    data, config = tmp_path / "data", tmp_path / "broker.toml"
    config.write_text("lease_ttl_s = 2.0\n")  # a recovery waits this long
    with running_cluster(data, config=config) as cluster:
        cluster.ok("topic", "create", "test/kept", "--segments", "2")
        cluster.ok("publish", "test/kept", stdin=b"a\nb\nc\n")
        assert cluster.stop() == 0
    shutil.rmtree(data / "etcd")
    with running_cluster(data, config=config) as cluster:
        cluster.ok("publish", "test/kept", stdin=b"d\n")
        assert sorted(cluster.ok("subscribe", "test/kept", "--format", "raw").split()) == ["a", "b", "c", "d"]
        assert cluster.stop() == 0
    log = (tmp_path / "up.log").read_text()
    assert "recovering etcd from the storage" in log
    assert "topic test/kept: 2 segments" in log
    assert "etcd recovered: cluster" in log


def test_nothing_survives_the_death_of_up(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data") as cluster:
        cluster.up.kill()
        _, alive = psutil.wait_procs(cluster.family, timeout=30)
        assert not alive
    with running_cluster(tmp_path / "data") as cluster:
        assert cluster.stop() == 0


def test_a_dead_broker_is_announced_and_the_others_go_on(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", brokers=2) as cluster:
        os.kill(cluster.pids[0], signal.SIGKILL)
        second = cluster.addresses.split(",")[1]
        cluster.ok("topic", "create", "test/after", "--bootstrap", second)
        cluster.ok("publish", "test/after", "--bootstrap", second, stdin=b"x\n")
        assert cluster.stop() == 0
    log = (tmp_path / "up.log").read_text()
    assert f"pid {cluster.pids[0]} ended: killed by SIGKILL" in log


def test_a_port_in_use_is_named_and_nothing_stays(tmp_path: Path) -> None:
    first = free_ports(2)
    others = set(psutil.Process().children(recursive=True))  # such as the JVM of tests with Spark
    with socket.create_server(("127.0.0.1", first + 1)):
        for ports, said in (
            (["--brokers", "2", "--port", str(first)], f"port {first + 1} is not free"),
            (
                ["--brokers", "1", "--port", str(first), "--kafka-port", str(first + 1)],
                f"port {first + 1} is not free (Address already in use): choose another with --kafka-port",
            ),
        ):
            done = run("up", *ports, "--data", str(tmp_path / "data"))
            assert (done.status, done.stdout) == (1, b"")
            assert said in done.stderr
            assert set(psutil.Process().children(recursive=True)) <= others
    assert not (tmp_path / "data").exists()


def test_every_broker_listens_for_kafka_clients_where_it_says(tmp_path: Path) -> None:
    first = free_ports(2)
    with running_cluster(tmp_path / "data", brokers=2, kafka_port=first) as cluster:
        assert cluster.kafka == f"127.0.0.1:{first},127.0.0.1:{first + 1}"
        assert [versions_asked(address) for address in cluster.kafka.split(",")] == [0, 0]
        assert cluster.stop() == 0
    with running_cluster(tmp_path / "data", brokers=2, kafka_port=0) as cluster:
        said = cluster.kafka.split(",")
        assert len(set(said)) == 2
        assert [versions_asked(address) for address in said] == [0, 0]
        shown = json.loads(cluster.ok("cluster", "brokers", "--output", "json"))
        assert {broker["kafka"] for broker in shown} == set(said)
        assert cluster.stop() == 0


def versions_asked(address: str) -> int:
    """Return the error code in the reply to the first request of every Kafka client."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        size, correlation_id, code = struct.unpack(">iih", client.recv(10, socket.MSG_WAITALL))
    assert correlation_id == 7
    assert size > 6
    return int(code)


def test_ports_that_overlap_are_refused(tmp_path: Path) -> None:
    done = run("up", "--port", "17777", "--kafka-port", "17779", "--data", str(tmp_path / "data"))
    assert done.status == 1
    assert "--port 17777 and --kafka-port 17779 overlap, each is the first of 3" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_data_folder_in_use_is_refused(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data"):
        done = run("up", "--brokers", "1", "--port", "0", "--data", str(tmp_path / "data"))
        assert done.status == 1
        assert "is in use by another cluster" in done.stderr


def test_a_data_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("up", "--port", "0", "--data", str(tmp_path / "file" / "data"))
    assert done.status == 1
    assert f"data folder {tmp_path / 'file' / 'data'} cannot be used" in done.stderr


def test_two_brokers_with_one_address_are_refused(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data") as cluster:
        etcd = next(p for p in cluster.family if p.name() == "etcd")
        url = next(a for a in etcd.cmdline() if a.startswith("--listen-client-urls="))
        options = ["--etcd", url.rpartition("/")[2], "--storage", str(tmp_path / "data" / "storage")]
        same = run("broker", *options, "--listen", f"127.0.0.1:{free_ports(1)}", "--advertise", cluster.addresses)
        assert same.status == 1
        assert cluster.addresses in same.stderr.splitlines()[-1]
        port = run("broker", *options, "--listen", cluster.addresses)
        assert port.status == 1
        assert f"port {cluster.addresses.rpartition(':')[2]} at 127.0.0.1 is in use" in port.stderr.splitlines()[-1]


def test_the_data_folder_is_said(tmp_path: Path) -> None:
    first = free_ports(1)
    with socket.create_server(("127.0.0.1", first)):
        done = subprocess.run(
            ["seaweedmq", "up", "--brokers", "1", "--port", str(first)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            timeout=30,
        )
    assert f"data in {tmp_path / 'seaweedmq-data'}" in done.stderr
