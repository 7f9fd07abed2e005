# Renames of language.md for tests. Usage: tests.sh TREE
set -e
cd $1
mv_() { git mv $1 $2; }
subst() { git ls-files '*.py' '*.toml' '*.md' 'Makefile' '.ci/run' | xargs grep -lE "$1" 2>/dev/null | xargs -r sed -i -E "s#$1#$2#g"; }
mv_ tests/broker/bed.py tests/broker/testbed.py;            subst '\btests\.broker\.bed\b' tests.broker.testbed; subst '\btests/broker/bed\.py' tests/broker/testbed.py
mv_ tests/faults/arena.py tests/faults/testbed.py;          subst '\btests\.faults\.arena\b' tests.faults.testbed; subst '\btests/faults/arena\.py' tests/faults/testbed.py
mv_ tests/kafka/doors.py tests/kafka/in_process_client.py;  subst '\btests\.kafka\.doors\b' tests.kafka.in_process_client; subst 'tests/kafka/doors\.py' tests/kafka/in_process_client.py
mv_ tests/kafka/office.py tests/kafka/byte_client.py;       subst '\btests\.kafka\.office\b' tests.kafka.byte_client; subst 'tests/kafka/office\.py' tests/kafka/byte_client.py
mv_ tests/sim/broken tests/sim/mutants;                     subst '\btests\.sim\.broken\b' tests.sim.mutants; subst 'tests/sim/broken\b' tests/sim/mutants
mv_ tests/sim/trouble tests/sim/nemesis;                    subst '\btests\.sim\.trouble\b' tests.sim.nemesis; subst 'tests/sim/trouble\b' tests/sim/nemesis
mv_ tests/integration/kafka_others tests/integration/kafka_external; subst '\bkafka_others\b' kafka_external
for m in core/member/member core/group/group core/kafka/group core/lineage/repair; do
  mv_ tests/${m}_tale.py tests/${m}_transcript.py; d=$(echo tests/$m | tr / .)
  subst "\\b${d//./\\.}_tale\\b" "${d}_transcript"; subst "tests/${m}_tale\\.py" "tests/${m}_transcript.py"
done
