import sys
from pathlib import Path
from dataclasses import replace
from benchmarks import scale as sc
from benchmarks.neighbors import run
import benchmarks.neighbors as n
if __name__ == "__main__":
    n.ROUNDS = 2
    full = next(getattr(sc, x) for x in ("full", "normal", "thorough") if hasattr(sc, x))
    s = replace(full(Path("/tmp"), Path("/tmp")), parts=tuple(sys.argv[1:]))
    for m in run(s):
        if m.target is not None:
            print(f"{m.name:60s} {m.ratio:5.2f} x  {m.value:6.2f} ms  n={m.details.get('requests')}", flush=True)
