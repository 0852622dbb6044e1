/* Small loads of known shape for the guests: static, without threads, reproducible under a virtual clock.
 *
 * load KIND NAME NICE CPUS POLICY SECONDS [A B [C]]
 *   hog       runs without end
 *   clock     as hog, and prints how much CPU time it got in all
 *   gap       as hog, and prints the longest time for which it did not run, in us
 *   sleeper   runs A us, sleeps B us
 *   periodic  runs A us every B us, at fixed moments
 *   pipe      runs A us, wakes its child NAMEb, which runs B us and wakes it
 *   forks     starts a child that runs A us, waits for it, B times a second
 *   holds     writes A MB to /tmp/held in one call, with the lock of the file, sleeps B us
 *   writes    writes a byte to /tmp/held every A us, and prints the longest such write, in us
 *   once      B us after the moment of `go` uses A us of CPU time; with C, sleeps C us and uses A us again; ends
 *   family    B us after the moment of `go` starts a child NAMEk; both use A us of CPU time
 *   narrow    B us after the moment of `go` uses A us, confines itself to a CPU of the mask C on which it is not, says so in
 *             the trace, and runs and sleeps for 200 ms; with B of -1 it begins at once and waits for no moment
 *   changes   uses A us of CPU time, gives itself nice 5, uses A us; with B, confines itself to CPU 1, uses A us, to CPU 2, uses A us
 *   beat      uses A us of CPU time, sleeps B us
 *   go        opens the gate of all that wait for a moment, which is in A us
 * KIND may begin with `at:US:`: it begins so many us after the moment of `go`, and SECONDS count from then on.
 * CPUS is a hexadecimal mask or -, POLICY is other, batch, idle or fifo:N. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

static void gap(const char *name)
{
    int64_t last = clock_ns(CLOCK_MONOTONIC), longest = 0;
    while (last < end) {
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        if (now - last > longest)
            longest = now - last;
        last = now;
    }
    printf("%s: longest gap %ld us\n", name, (long)(longest / 1000));
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

static int holds(void)
{
    long size = a << 20;
    char *text = calloc(1, size);
    int file = open("/tmp/held", O_CREAT | O_WRONLY, 0600);
    if (!text || file < 0)
        return 1;
    while (going()) {
        if (pwrite(file, text, size, 0) != size)
            return 1;
        sleep_us(b);
    }
    return 0;
}

static int writes(const char *name)
{
    int64_t longest = 0;
    int file = open("/tmp/held", O_CREAT | O_WRONLY, 0600);
    if (file < 0)
        return 1;
    while (going()) {
        int64_t before = clock_ns(CLOCK_MONOTONIC);
        if (pwrite(file, "x", 1, 0) != 1)
            return 1;
        int64_t took = clock_ns(CLOCK_MONOTONIC) - before;
        if (took > longest)
            longest = took;
        sleep_us(a);
    }
    printf("%s: longest write %ld us\n", name, (long)(longest / 1000));
    return 0;
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

#define GATE "/tmp/gate"
#define MOMENT "/tmp/moment"

/* All that wait sleep in open() until `go` opens the gate for writing: they wake once. */
static int go(void)
{
    int64_t moment = clock_ns(CLOCK_MONOTONIC) + a * 1000;
    FILE *file = fopen(MOMENT, "w");
    if (!file)
        return 1;
    fprintf(file, "%lld", (long long)moment);
    fclose(file);
    return open(GATE, O_WRONLY) < 0;
}

/* Sleeps until `us` after the moment. */
static int await(long us)
{
    long long moment = 0;
    if (mkfifo(GATE, 0600) && errno != EEXIST)
        return 1;
    if (open(GATE, O_RDONLY) < 0)
        return 1;
    FILE *file = fopen(MOMENT, "r");
    if (!file || fscanf(file, "%lld", &moment) != 1)
        return 1;
    moment += us * 1000;
    struct timespec until = { moment / 1000000000, moment % 1000000000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0) == EINTR)
        ;
    return 0;
}

/* CPU time, not loops: it is the same however many CPUs of a virtual clock are busy. */
static void use_us(long us)
{
    int64_t until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + us * 1000;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until)
        run_us(20);
}

static void beat(void)
{
    while (going()) {
        use_us(a);
        sleep_us(b);
    }
}

static int family(const char *name)
{
    pid_t child = fork();
    if (!child) {
        char own[16];
        snprintf(own, sizeof own, "%sk", name);
        prctl(PR_SET_NAME, own);
        use_us(a);
        _exit(0);
    }
    use_us(a);
    return waitpid(child, 0, 0) < 0;
}

static int narrow(const char *name, unsigned long among)
{
    unsigned cpu = 0, node;
    use_us(a);
    syscall(SYS_getcpu, &cpu, &node, 0);
    among &= ~(1UL << cpu);
    while (among & (among - 1))
        among &= among - 1;
    if (!among || syscall(SYS_sched_setaffinity, 0, sizeof among, &among) < 0)
        return 1;
    int marker = open("/sys/kernel/tracing/instances/x/trace_marker", O_WRONLY);
    char text[64];
    int length = snprintf(text, sizeof text, "narrowed %s to %lx from %u\n", name, among, cpu);
    if (marker < 0 || write(marker, text, length) != length)
        return 1;
    for (int64_t until = clock_ns(CLOCK_MONOTONIC) + 200000000; clock_ns(CLOCK_MONOTONIC) < until;) {
        use_us(2000);
        sleep_us(3000);
    }
    unsigned long now = 0;
    syscall(SYS_sched_getaffinity, 0, sizeof now, &now);
    printf("%s may run on %lx, as it asked: %s\n", name, now, now == among ? "yes" : "no");
    return 0;
}

static int changes(void)
{
    use_us(a);
    if (setpriority(PRIO_PROCESS, 0, 5))
        return 1;
    use_us(a);
    for (unsigned long cpu = 1; b && cpu <= 2; cpu++) {
        unsigned long mask = 1UL << cpu;
        if (syscall(SYS_sched_setaffinity, 0, sizeof mask, &mask) < 0)
            return 1;
        use_us(a);
    }
    return 0;
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
        fprintf(stderr, "load KIND NAME NICE CPUS POLICY SECONDS [A B [C]]\n");
        return 2;
    }
    const char *kind = words[1];
    if (settle(words)) {
        perror(words[2]);
        return 2;
    }
    if (!strncmp(kind, "at:", 3) && strchr(kind + 3, ':')) {
        if (await(atol(kind + 3))) {
            perror(words[2]);
            return 1;
        }
        kind = strchr(kind + 3, ':') + 1;
    }
    end = clock_ns(CLOCK_MONOTONIC) + (int64_t)(atof(words[6]) * 1e9);
    a = count > 7 ? atol(words[7]) : 0;
    b = count > 8 ? atol(words[8]) : 0;
    int waits = !strcmp(kind, "once") || !strcmp(kind, "family") || (!strcmp(kind, "narrow") && b >= 0);
    if (waits && await(b)) {
        perror(words[2]);
        return 1;
    }
    if (!strcmp(kind, "once")) {
        use_us(a);
        if (count > 9) {
            sleep_us(atol(words[9]));
            use_us(a);
        }
    } else if (!strcmp(kind, "family")) {
        return family(words[2]);
    } else if (!strcmp(kind, "narrow")) {
        return narrow(words[2], count > 9 ? strtoul(words[9], 0, 16) : 0);
    } else if (!strcmp(kind, "go")) {
        return go();
    } else if (!strcmp(kind, "hog") || !strcmp(kind, "clock")) {
        while (going())
            run_us(1000);
        if (*kind == 'c')
            printf("%s %lld us\n", words[2], (long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000);
    } else if (!strcmp(kind, "gap")) {
        gap(words[2]);
    } else if (!strcmp(kind, "sleeper")) {
        while (going()) {
            run_us(a);
            sleep_us(b);
        }
    } else if (!strcmp(kind, "beat")) {
        beat();
    } else if (!strcmp(kind, "changes")) {
        return changes();
    } else if (!strcmp(kind, "periodic")) {
        periodic();
    } else if (!strcmp(kind, "forks")) {
        forks();
    } else if (!strcmp(kind, "holds")) {
        return holds();
    } else if (!strcmp(kind, "writes")) {
        return writes(words[2]);
    } else if (!strcmp(kind, "pipe")) {
        return pair(words[2]);
    } else {
        fprintf(stderr, "no load `%s`\n", kind);
        return 2;
    }
    return 0;
}
