"""W1 (global EDF, 8 CPUs, 100 periodic tasks) under SimSo: CPU seconds and preemptions.

usage: simso_w1.py W1.JSON SIMULATED_SECONDS
"""
import contextlib
import json
import os
import sys
import time

from simso.configuration import Configuration
from simso.core import Model


def main():
    path, seconds = sys.argv[1], float(sys.argv[2])
    with open(path) as file:
        tasks = json.load(file)["tasks"]
    configuration = Configuration()
    configuration.duration = int(seconds * 1000) * configuration.cycles_per_ms
    for task in tasks:
        configuration.add_task(
            name="t%d" % task["id"], identifier=task["id"], activation_date=0,
            period=task["period_us"] / 1000, deadline=task["period_us"] / 1000, wcet=task["wcet_us"] / 1000)
    for cpu in range(8):
        configuration.add_processor(name="cpu%d" % cpu, identifier=cpu)
    configuration.scheduler_info.clas = "simso.schedulers.EDF"
    configuration.check_all()
    model = Model(configuration)
    start = time.process_time()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        model.run_model()  # its EDF prints every decision
    spent = time.process_time() - start
    jobs = sum(len(task.jobs) for task in model.results.tasks.values())
    preemptions = sum(job.preemption_count for task in model.results.tasks.values() for job in task.jobs)
    print("SimSo 0.8.5, W1: %.3f sim s per CPU s   (%d jobs, %d preemptions by its own count, %g sim s, %.2f CPU s)"
          % (seconds / spent, jobs, preemptions, seconds, spent))


main()
