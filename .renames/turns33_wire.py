import asyncio, sys, time, os, subprocess
def server():
    import uvloop
    from seaweedmq.kafka.server import KafkaServer, bind
    from seaweedmq.kafka.wire.messages import API, ProduceResponse
    from seaweedmq.model.config import BrokerConfig
    from seaweedmq.cli.servers.process import tune
    import seaweedmq
    async def done():
        return ProduceResponse(responses=[], throttle_time_ms=0)
    async def prod(request):
        assert request.body.topic_data[0].partition_data[0].index == 0
        return done()
    async def main():
        tune()
        s = KafkaServer({API.PRODUCE: prod}, BrokerConfig())
        b = bind("127.0.0.1", 0)
        await s.start(b); print(b.getsockname()[1], seaweedmq.__file__, flush=True)
        await asyncio.sleep(3600)
    uvloop.run(main())
if sys.argv[1:] == ["server"]:
    server()
else:
    import psutil, statistics
    sys.path.insert(0, "/tmp/wt/turns33")
    from benchmarks.kafka.wire import Wire, produce_head
    from benchmarks.kafka.batches import batch_of
    batch = batch_of([b"x"*100]*10); req = produce_head("t", len(batch)) + batch
    procs = {}
    for side, tree in (("base", "/tmp/wt/base33"), ("new", "/tmp/wt/turns33"), ("main", "/work/main")):
        p = subprocess.Popen([sys.executable, __file__, "server"], env={**os.environ, "PYTHONPATH": tree}, stdout=subprocess.PIPE, text=True)
        port, file = p.stdout.readline().split(); assert tree in file
        procs[side] = (p, Wire(f"127.0.0.1:{port}"))
    got = {s: [] for s in procs}
    for r in range(8):
        for side, (p, w) in procs.items():
            c0 = psutil.Process(p.pid).cpu_times(); n = 6000
            w.send(*[req]*5)
            for i in range(n):
                w.receive()
                if i < n - 5: w.send(req)
            c1 = psutil.Process(p.pid).cpu_times()
            if r: got[side].append((c1.user + c1.system - c0.user - c0.system) / n * 1e6)
    for side, v in got.items(): print(side, "us a request: median %.1f min %.1f" % (statistics.median(v), min(v)))
    for p, _ in procs.values(): p.kill()
