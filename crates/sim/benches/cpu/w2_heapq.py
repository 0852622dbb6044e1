"""W2 written by hand with heapq: 64 tasks pinned to 8 CPUs, round robin with slices of 4 ms. Prints
the CPU seconds of one event (the end of a slice, or a wakeup), and slices, bursts and the work in
them."""
import heapq
import time
from collections import deque

CPUS, TASKS, SLICE, END = 8, 64, 4_000_000, 200_000_000_000
MASK = (1 << 64) - 1


def lengths(task: int):
    """Bursts and sleeps in turn: splitmix64, seeded with the task's number."""
    state = task
    while True:
        for span in (19_000_000, 39_000_000):
            state = (state + 0x9E3779B97F4A7C15) & MASK
            z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
            yield 1_000_000 + (z ^ (z >> 31)) % span


def main() -> None:
    draw = [lengths(task).__next__ for task in range(TASKS)]
    waiting = [deque() for _ in range(CPUS)]
    running, left = [-1] * CPUS, [0] * TASKS
    pop, push = heapq.heappop, heapq.heappush
    before = time.process_time()
    # Time, order in an instant, and the task that wakes or the CPU (as -1 - CPU) whose slice ends.
    heap = [(0, task, task) for task in range(TASKS)]
    seq, slices, bursts, wakeups, worked = TASKS, 0, 0, 0, 0
    while heap[0][0] < END:
        now, _, what = pop(heap)
        if what < 0:
            cpu = -1 - what
            task = running[cpu]
            slices += 1
            rest = left[task]
            if rest > SLICE:
                left[task] = rest - SLICE
                waiting[cpu].append(task)
                worked += SLICE
            else:
                bursts += 1
                worked += rest
                seq += 1
                push(heap, (now + draw[task](), seq, task))
            running[cpu] = -1
        else:
            wakeups += 1
            cpu = what % CPUS
            left[what] = draw[what]()
            waiting[cpu].append(what)
        if running[cpu] < 0 and waiting[cpu]:
            task = running[cpu] = waiting[cpu].popleft()
            seq += 1
            push(heap, (now + (left[task] if left[task] < SLICE else SLICE), seq, -1 - cpu))
    spent = time.process_time() - before
    print(spent / (slices + wakeups), slices, bursts, worked)


main()
