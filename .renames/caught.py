import sys, multiprocessing as mp
from tests.sim.test_simulation import CAUGHT_BY
from tests.sim.catching import is_caught
from tests.sim.world import simulate
def one(item):
    name, seed = item
    try:
        return name, seed, is_caught(name, seed), ""
    except BaseException as e:
        return name, seed, False, repr(e)[:200]
if __name__ == "__main__":
    with mp.Pool(2) as pool:
        for name, seed, ok, why in pool.imap_unordered(one, CAUGHT_BY.items()):
            if not ok: print(name, seed, why, flush=True)
    print("done")
