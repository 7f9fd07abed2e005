set -e
T=$1; cd $T
python3 /tmp/run/ren/ren.py $T /tmp/run/ren/spec1.txt
init() { [ -e seaweedmq/$1/__init__.py ] || echo "\"\"\"$2\"\"\"" > seaweedmq/$1/__init__.py; git add seaweedmq/$1/__init__.py; }
init kafka/data "Kafka's APIs about records: Produce, Fetch, ListOffsets, DeleteRecords, InitProducerId."
init kafka/metadata "Kafka's view of the cluster: Metadata and DescribeCluster, topics with their partitions, brokers as nodes."
init kafka/admin "Kafka's admin APIs: topics, their configs, and what lies in them."
init kafka/groups "Kafka's groups: classic members, committed offsets, FindCoordinator, and the admin APIs of groups."
sed -i 's/"tuple\[Arrived, Arrived | None\]"/"tuple[FetchedRows, FetchedRows | None]"/' seaweedmq/client/subscribe/messages.py
sed -i 's/OrderedDict\[PartitionKey, Wanted\]/OrderedDict[PartitionKey, RequestedPartition]/' seaweedmq/core/kafka/fetch_session.py
sed -i 's/make_term/make_incarnation/g' seaweedmq/broker/membership.py
grep -rl "make_term" tests seaweedmq | xargs -r sed -i 's/\bmake_term\b/make_incarnation/g'
python3 - <<'P'
p="seaweedmq/client/group/assignment_lease.py"; s=open(p).read()
s=s.replace("""While a stream is open, gRPC looks below Python whether the coordinator is there; :meth:`AssignmentLease.beat` notes that, and
by what lies between two beats a process sees that it stood still.""","""While a stream is open, gRPC looks below Python whether the coordinator is there; :meth:`AssignmentLease.beat` notes
that, and by what lies between two beats a process sees that it stood still.""")
open(p,"w").write(s)
P
python3 /tmp/run/ren/layers.py $T /tmp/run/ren/spec1.txt
B=/work/main/.venv/bin
$B/ruff check --select E9,I,RUF022 --fix -q . || true; $B/ruff format -q .
$B/ruff check --output-format concise . || true
PYTHONPATH=$T $B/mypy --cache-dir /tmp/run/mypy_ren seaweedmq benchmarks 2>&1 | tail -20
PYTHONPATH=$T $B/lint-imports 2>&1 | grep -vE "KEPT" | tail -40
