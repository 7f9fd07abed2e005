"""Renames of modules and of names in them, through a whole tree.

spec lines:
  move OLD.dotted.module NEW.dotted.module      (without the leading "seaweedmq.")
  name OLD.dotted.module Old New                (module by its OLD name)
"""
import ast, io, re, subprocess, sys, tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(sys.argv[1]); SPEC = Path(sys.argv[2])
PKG = "seaweedmq"
moves, names = {}, defaultdict(dict)
for raw in SPEC.read_text().splitlines():
    line = raw.split("#")[0].split()
    if not line: continue
    if line[0] == "move": moves[f"{PKG}.{line[1]}"] = f"{PKG}.{line[2]}"
    elif line[0] == "name": names[f"{PKG}.{line[1]}"][line[2]] = line[3]
    else: sys.exit(f"bad line {raw}")

files = [ROOT / f for f in subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n") if f]
py = [f for f in files if f.suffix in (".py", ".pyi") and "_pb2" not in f.name]
texts = [f for f in files if f.suffix in (".md", ".toml", ".yml", ".yaml", ".sh", ".cfg", ".txt") or f.name in ("Makefile", "run")]

def module_of(path):
    rel = path.relative_to(ROOT).with_suffix("")
    parts = list(rel.parts)
    if parts[-1] == "__init__": parts.pop()
    return ".".join(parts)

src = {f: f.read_text() for f in py}
mods = {module_of(f): f for f in py}
trees = {f: ast.parse(s) for f, s in src.items()}
missing = [m for m in moves if m not in mods] + [m for m in names if m not in mods]
if missing: print("no such module:", missing)
for m, table in names.items():
    if m not in mods: continue
    defined = set()
    for node in ast.walk(trees[mods[m]]):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)): defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store): defined.add(node.id)
        elif isinstance(node, ast.alias): defined.add(node.asname or node.name)
    for old, new in table.items():
        if old not in defined: print(f"{m} does not define {old}")
        if new in defined: print(f"{m} already has {new}")

# exported[(module, name)] = new name, with re-exports
exported = {(m, o): n for m, t in names.items() for o, n in t.items()}
changed = True
while changed:
    changed = False
    for f, tree in trees.items():
        me = module_of(f)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for a in node.names:
                    key = (node.module, a.name)
                    if key in exported and a.asname in (None, a.name) and (me, a.name) not in exported:
                        exported[(me, a.name)] = exported[key]; changed = True

def rewrite(f):
    s, tree, me = src[f], trees[f], module_of(f)
    local = dict(names.get(me, {}))                # bare names to replace
    dotted = {}                                    # (alias of a module) -> {old: new}
    modname = {}                                   # local module names to replace
    clash = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for a in node.names:
                key = (node.module, a.name)
                full = f"{node.module}.{a.name}"
                if key in exported:
                    if a.asname in (None, a.name): local[a.name] = exported[key]
                    else: local.setdefault(("as", a.name), None); dotted.setdefault("__import__", {})[(node.module, a.name)] = exported[key]
                if full in mods and full != me:
                    al = a.asname or a.name
                    t = {o: n for (m, o), n in exported.items() if m == full}
                    if t: dotted.setdefault(al, {}).update(t)
                    if full in moves:
                        new = moves[full].rpartition(".")[2]
                        if a.asname is None and new != a.name: modname[a.name] = new
        elif isinstance(node, ast.Import):
            for a in node.names:
                if a.name in mods:
                    pass
    toks = list(tokenize.generate_tokens(io.StringIO(s).readline))
    lines = s.splitlines(keepends=True)
    edits = []
    for i, t in enumerate(toks):
        if t.type == tokenize.NAME:
            prev = toks[i-1] if i else None
            after_dot = prev is not None and prev.string == "."
            if not after_dot:
                nxt = toks[i+1].string if i + 1 < len(toks) else ""
                is_kwarg = nxt == "=" and prev is not None and prev.string in ("(", ",")
                if t.string in local and local[t.string] and not is_kwarg: edits.append((t.start, t.end, local[t.string]))
                elif t.string in modname and not is_kwarg and nxt in (".", ",", ")", "\n", "") : edits.append((t.start, t.end, modname[t.string]))
                elif t.string in modname and prev is not None and prev.string in ("import", ",", "("): edits.append((t.start, t.end, modname[t.string]))
            else:
                base = toks[i-2].string if i > 1 else ""
                before = toks[i-3].string if i > 2 else ""
                if before != "." and base in dotted and t.string in dotted[base]: edits.append((t.start, t.end, dotted[base][t.string]))
        elif t.type == tokenize.STRING or t.type == tokenize.COMMENT or t.type == getattr(tokenize, "FSTRING_MIDDLE", -1):
            new = t.string
            if t.type == tokenize.STRING and "f" in t.string[: min(t.string.find('"') % 99, t.string.find("'") % 99)].lower():
                table = {o: n for o, n in local.items() if isinstance(o, str) and n} | modname
                if table:
                    frx = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, table)) + r")\b(?!=[^=])")
                    new = re.sub(r"\{[^{}]*\}", lambda m: frx.sub(lambda k: table[k[1]], m[0]), new)
            for old, n in local.items():
                if isinstance(old, str) and n:
                    new = re.sub(rf"(``|`)((?:[\w.]+\.)?){re.escape(old)}\b(?=[\w.()]*`)", lambda m: f"{m[1]}{m[2]}{n}", new)
                    if t.type == tokenize.STRING and re.fullmatch(rf"""["']{re.escape(old)}(\[.*\])?["']""", new): new = new.replace(old, n)
                    elif t.type == tokenize.STRING and not t.string.startswith(('"""', "'''")) and " " not in new.strip("\"'") : new = re.sub(rf"(?<![\w.]){re.escape(old)}(?![\w])", n, new)
            if new != t.string: edits.append((t.start, t.end, new))
    offsets = [0]
    for l in lines: offsets.append(offsets[-1] + len(l))
    pos = lambda p: offsets[p[0]-1] + p[1]
    for start, end, new in sorted(edits, reverse=True):
        a, b = pos(start), pos(end)
        s = s[:a] + new + s[b:]
    return s

ordered = sorted(moves, key=len, reverse=True)
rx = re.compile(r"(?<![\w.])(" + "|".join(re.escape(m) for m in ordered) + r")(?![\w])(?!\.py\b)") if moves else None
def paths(text):
    for old in ordered:
        o, n = old.removeprefix(PKG + ".").replace(".", "/"), moves[old].removeprefix(PKG + ".").replace(".", "/")
        text = re.sub(rf"(?<![\w/]){re.escape(PKG + '/' + o)}\.py\b", f"{PKG}/{n}.py", text)
        text = re.sub(rf"(?<![\w/.]){re.escape(o)}\.py\b", f"{n}.py", text)
        text = re.sub(rf"(?<=\.\./)({PKG}/)?{re.escape(o)}\.py\b", lambda m: f"{m[1] or ''}{n}.py", text)
    return text
def split_from(text):
    # from pkg import module -> from newpkg import newmodule, one at a time
    def one(m):
        pkg, inside = m[1], m[2]
        items = [x.strip() for x in inside.strip("() \n").replace("\n", " ").split(",") if x.strip()]
        out, stay = [], []
        for it in items:
            base = it.split(" as ")[0].strip()
            full = f"{pkg}.{base}"
            hit = next((o for o in moves if o.rpartition(".")[0] == pkg and o.rpartition(".")[2] == base or moves[o].rpartition(".")[2] == base and o.rpartition(".")[0] == pkg), None)
            if hit and moves[hit].rpartition(".")[0] != pkg:
                out.append(f"from {moves[hit].rpartition('.')[0]} import {it.replace(base, moves[hit].rpartition('.')[2], 1)}")
            else: stay.append(it)
        if not out: return m[0]
        if stay: out.insert(0, f"from {pkg} import {', '.join(stay)}")
        return "\n".join(m[0][:len(m[0]) - len(m[0].lstrip())] + o for o in out)
    return re.sub(r"^[ \t]*from (seaweedmq[\w.]*) import (\([^)]*\)|[^\n(]+)", one, text, flags=re.M)

for f in py:
    s = rewrite(f)
    if rx:
        s = split_from(s)
        s = rx.sub(lambda m: moves[m[1]], s)
        s = paths(s)
    if s != src[f]: f.write_text(s)
for f in texts:
    if not f.is_file(): continue
    s0 = s = f.read_text()
    if rx:
        s = rx.sub(lambda m: moves[m[1]], s)
        s = paths(s)
    for m, t in names.items():
        for o, n in t.items():
            s = re.sub(rf"`{re.escape(o)}`", f"`{n}`", s)
    if s != s0: f.write_text(s)
for old, new in moves.items():
    if old not in mods: continue
    a = mods[old]; b = ROOT / (new.replace(".", "/") + ".py")
    b.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "mv", str(a), str(b)], cwd=ROOT, check=True)
    # the test beside it
    rel = a.relative_to(ROOT / PKG)
    t = ROOT / "tests" / rel.parent / f"test_{rel.name}"
    if t.exists():
        nt = ROOT / "tests" / b.relative_to(ROOT / PKG).parent / f"test_{b.name}"
        if not nt.exists():
            nt.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", str(t), str(nt)], cwd=ROOT, check=True)
