"""CPU seconds of one event of a bare heap loop: the earliest of 64 events is taken out and the next
one of its task put in. The least that a simulator in Python does for an event."""
import heapq
import time

EVENTS = 300_000


def main() -> None:
    heap = [(977 * task % 64, task) for task in range(64)]
    heapq.heapify(heap)
    pop, push = heapq.heappop, heapq.heappush
    before = time.process_time()
    for number in range(EVENTS):
        at, task = pop(heap)
        push(heap, (at + 64 + 977 * number % 1000, task))
    print((time.process_time() - before) / EVENTS)


main()
