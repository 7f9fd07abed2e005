set -e
cd /tmp/wt/int
chrt -i 0 python3 /tmp/run/ren/ren.py /tmp/wt/int /tmp/run/ren/spec1.txt
for d in kafka/data kafka/metadata kafka/admin kafka/groups shards; do [ -e seaweedmq/$d/__init__.py ] || echo '"""TODO."""' > seaweedmq/$d/__init__.py; git add seaweedmq/$d/__init__.py; done
/work/main/.venv/bin/ruff check --select E9,I --fix -q . | tail -20 || true; /work/main/.venv/bin/ruff format -q .
chrt -i 0 /work/main/.venv/bin/ruff check --output-format concise . | head -50 || true
chrt -i 0 env PYTHONPATH=/tmp/wt/int /work/main/.venv/bin/mypy --cache-dir /tmp/run/mypy_int seaweedmq benchmarks 2>&1 | tail -60
