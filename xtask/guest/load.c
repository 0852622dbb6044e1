/* Small loads of known shape for the guests: static, without threads, reproducible under a virtual clock.
 *
 * load KIND NAME NICE CPUS POLICY SECONDS [A B]
 *   hog       runs without end
 *   clock     as hog, and prints how much CPU time it got in all
 *   sleeper   runs A us, sleeps B us
 *   periodic  runs A us every B us, at fixed moments
 *   pipe      runs A us, wakes its child NAMEb, which runs B us and wakes it
 *   forks     starts a child that runs A us, waits for it, B times a second
 * CPUS is a hexadecimal mask or -, POLICY is other, batch, idle or fifo:N. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* 250 instructions a microsecond: at `-icount shift=2` an instruction takes 4 ns. */
static void run_us(long us)
{
    for (long i = 0; i < us; i++) {
        uint64_t rounds = 124;
        __asm__ volatile("1: dec %0; jnz 1b" : "+r"(rounds));
    }
}

static void sleep_us(long us)
{
    struct timespec time = { us / 1000000, us % 1000000 * 1000 };
    nanosleep(&time, 0);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int64_t end;
static long a, b;

static int going(void)
{
    return clock_ns(CLOCK_MONOTONIC) < end;
}

static void periodic(void)
{
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    while (going()) {
        run_us(a);
        next.tv_nsec += b * 1000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
    }
}

static int pair(const char *name)
{
    int there[2], back[2];
    char byte = 0;
    if (pipe(there) || pipe(back))
        return 1;
    pid_t child = fork();
    if (!child) {
        char own[16];
        snprintf(own, sizeof own, "%sb", name);
        prctl(PR_SET_NAME, own);
        close(there[1]);
        close(back[0]);
        while (read(there[0], &byte, 1) == 1) {
            run_us(b);
            if (write(back[1], &byte, 1) != 1)
                break;
        }
        _exit(0);
    }
    close(there[0]);
    close(back[1]);
    while (going()) {
        run_us(a);
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
            break;
    }
    close(there[1]);
    waitpid(child, 0, 0);
    return 0;
}

static void forks(void)
{
    while (going()) {
        pid_t child = fork();
        if (!child) {
            run_us(a);
            _exit(0);
        }
        waitpid(child, 0, 0);
        sleep_us(1000000 / (b ? b : 10));
    }
}

static int settle(char **words)
{
    prctl(PR_SET_NAME, words[2]);
    prctl(PR_SET_TIMERSLACK, 1);
    if (strcmp(words[4], "-")) {
        unsigned long mask = strtoul(words[4], 0, 16);
        if (syscall(SYS_sched_setaffinity, 0, sizeof mask, &mask) < 0)
            return -1;
    }
    struct sched_param param = { 0 };
    int policy = SCHED_OTHER;
    if (!strcmp(words[5], "batch"))
        policy = SCHED_BATCH;
    else if (!strcmp(words[5], "idle"))
        policy = SCHED_IDLE;
    else if (!strncmp(words[5], "fifo:", 5)) {
        policy = SCHED_FIFO;
        param.sched_priority = atoi(words[5] + 5);
    }
    if (policy != SCHED_OTHER && sched_setscheduler(0, policy, &param))
        return -1;
    return atoi(words[3]) ? setpriority(PRIO_PROCESS, 0, atoi(words[3])) : 0;
}

int main(int count, char **words)
{
    if (count < 7) {
        fprintf(stderr, "load KIND NAME NICE CPUS POLICY SECONDS [A B]\n");
        return 2;
    }
    const char *kind = words[1];
    if (settle(words)) {
        perror(words[2]);
        return 2;
    }
    end = clock_ns(CLOCK_MONOTONIC) + (int64_t)(atof(words[6]) * 1e9);
    a = count > 7 ? atol(words[7]) : 0;
    b = count > 8 ? atol(words[8]) : 0;
    if (!strcmp(kind, "hog") || !strcmp(kind, "clock")) {
        while (going())
            run_us(1000);
        if (*kind == 'c')
            printf("%s %lld us\n", words[2], (long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000);
    } else if (!strcmp(kind, "sleeper")) {
        while (going()) {
            run_us(a);
            sleep_us(b);
        }
    } else if (!strcmp(kind, "periodic")) {
        periodic();
    } else if (!strcmp(kind, "forks")) {
        forks();
    } else if (!strcmp(kind, "pipe")) {
        return pair(words[2]);
    } else {
        fprintf(stderr, "no load `%s`\n", kind);
        return 2;
    }
    return 0;
}
