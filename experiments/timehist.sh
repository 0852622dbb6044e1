#!/usr/bin/env bash
# `schedlab show --timehist` against `perf sched timehist` on one load: the same rows, waits within 5 us, and how much
# faster.   experiments/timehist.sh [SECONDS [LOAD...]]
#
# perf records the scheduler's tracepoints while LOAD runs (default: `perf bench sched pipe`), `perf script` turns that
# into text, `schedlab import` into a recording. Both tools then list it. Rows are compared in order: time, CPU, thread
# and run time must be the same to perf's microseconds; waits and delays within 5 us. Rows that differ are counted by
# kind and the first ones printed. Speed is CPU time (user + system) and elapsed time, three rounds, interleaved, medians.
# Ten million events: experiments/timehist.sh 60 perf bench sched pipe -l 2500000 (4 events an operation).
# Needs root, perf with tracepoints, and a release build (SCHEDLAB=path). Changes nothing on the machine.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
schedlab=${SCHEDLAB:-$root/target/release/schedlab}
seconds=${1:-5}; shift || true
[ $# -gt 0 ] || set -- timeout "$seconds" perf bench sched pipe -l 100000000
work=${WORK:-$(mktemp -d)}
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
cd "$work"

[ -s perf.data ] || perf record -q -a -m 8M -k CLOCK_MONOTONIC -o perf.data \
    -e sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,sched:sched_migrate_task,sched:sched_process_fork \
    -e sched:sched_process_exit,sched:sched_process_exec -- "$@" >/dev/null 2>&1 || true
[ -s perf.data ] || { echo "perf recorded nothing" >&2; exit 2; }
[ -s a.slt ] || perf script -i perf.data -F comm,pid,tid,cpu,time,event,trace --ns 2>/dev/null | "$schedlab" import - -o a.slt

spent() { local t; t=$( { TIMEFORMAT='%U %S %R'; time "$@" >/dev/null 2>&1; } 2>&1 ); echo "$t" | awk '{print $1 + $2, $3}'; }
rm -f perf.spent ours.spent
for round in 1 2 3; do
    spent perf sched timehist -i perf.data >>perf.spent
    spent "$schedlab" show a.slt --timehist --absolute >>ours.spent
done
"$schedlab" show a.slt --tasks --json >about.json
perf sched timehist -i perf.data 2>/dev/null >perf.txt
"$schedlab" show a.slt --timehist --absolute >ours.txt
python3 - <<'EOF'
import re, statistics
row = re.compile(r'^\s*(\d+)\.(\d{6}) \s*\[(\d+)\]\s+(.*?)\s+(\d+\.\d{3})\s+(\d+\.\d{3})\s+(\d+\.\d{3})')
def rows(path):
    out = []
    for line in open(path, errors='replace'):
        m = row.match(line)
        if m:
            s, us, cpu, who, wait, delay, run = m.groups()
            # perf prints -1, or no number, for some tasks that had ended before it could look.
            tid = re.search(r'\[(\d+)(/\d+)?\]$', who)
            tid = 0 if who.startswith('<idle>') else int(tid.group(1)) if tid else -1
            us3 = lambda t: round(float(t) * 1000)
            out.append((int(s) * 1000000 + int(us), int(cpu), tid, us3(wait), us3(delay), us3(run)))
    return out
perf, ours = rows('perf.txt'), rows('ours.txt')
key = lambda r: r[:2]
thread = lambda a, b: a[2] == b[2] or a[2] == -1
theirs = {}
for r in ours: theirs.setdefault(key(r), []).append(r)
same = sum(any(thread(a, b) for b in theirs.get(key(a), [])) for a in perf)
only_perf, only_ours = set(map(key, perf)) - set(map(key, ours)), set(map(key, ours)) - set(map(key, perf))
print(f'rows: perf {len(perf)}, schedlab {len(ours)}; same time, CPU and thread: {same} ({sum(r[2] == -1 for r in perf)} without a thread in perf); '
      f'only perf {len(only_perf)}, only schedlab {len(only_ours)}')
names, worst, within, off = ('wait', 'sch delay', 'run'), [0, 0, 0], [0, 0, 0], [[], [], []]
both = 0
for a in perf:
    b = next((b for b in theirs.get(key(a), []) if thread(a, b)), None)
    if not b: continue
    theirs[key(a)].remove(b); both += 1
    for i in range(3):
        d = abs(a[3 + i] - b[3 + i])
        within[i] += d <= 5
        if d > 5: off[i].append((d, a, b))
for i in range(3):
    print(f'{names[i]}: {within[i]} of {both} rows within 5 us ({100 * within[i] / max(both, 1):.4f} %)')
    for d, a, b in off[i][:int(__import__("os").environ.get("SHOW", "3"))]: print('   perf', a, 'schedlab', b)
import json
events = json.load(open('about.json'))['recording']['events']
perf, ours = ([list(map(float, line.split())) for line in open(f)] for f in ('perf.spent', 'ours.spent'))
for what, column in (('CPU time', 0), ('elapsed', 1)):
    p, o = (statistics.median(row[column] for row in rows) for rows in (perf, ours))
    print(f'{what}: {events} events, perf sched timehist {p:.2f} s, schedlab show --timehist {o:.2f} s (opening included): {p / o:.1f} times')
EOF
