"""Rename layers of the import contracts by the spec's moves."""
import re, sys
from pathlib import Path
root, spec = Path(sys.argv[1]), Path(sys.argv[2])
moves = {}
for raw in spec.read_text().splitlines():
    line = raw.split("#")[0].split()
    if line and line[0] == "move":
        moves["seaweedmq." + line[1]] = "seaweedmq." + line[2]
p = root / "pyproject.toml"
text = p.read_text()
def contract(m):
    block = m[0]
    c = re.search(r'^containers = \["([\w.]+)"\]', block, re.M)
    if not c: return block
    box = c[1]
    def layers(l):
        def name(n):
            new = moves.get(f"{box}.{n[0]}")
            if new and new.rpartition(".")[0] == box: return new.rpartition(".")[2]
            return n[0]
        return re.sub(r"[\w]+", name, l[1]) if False else "layers = [" + re.sub(r'\b\w+\b', name, l[1]) + "]"
    return re.sub(r"layers = \[(.*?)\]", layers, block, flags=re.S)
text = re.sub(r"\[\[tool\.importlinter\.contracts\]\].*?(?=\n\[\[|\n\[tool|\Z)", contract, text, flags=re.S)
p.write_text(text)
