/* /init of an initramfs: where a real kernel puts tasks. Reads /scenes, one scene a line, plays each, and prints what came.
 *   wake KIND WAKER BUSY PREV,...       KIND futex (the waker goes on) or pipe (it sleeps): where each sleeper runs after its wakeup
 *   fork PARENT BUSY COUNT              where each child of a parent that goes on runs first
 *   exec FROM BUSY COUNT                where each of some tasks that ran on FROM, and may run everywhere, runs first as another program
 *   spread SECONDS COUNT:BEGIN:ALLOWED[:GROUP];...   CPU-bound tasks from a placement: how they are spread, and their CPU time
 * BUSY: CPUs with a CPU-bound task that is pinned there, or - for none. GROUP p: in a control group with `cpuset` PARTITION, below.
 *   partition KIND CPUS                 makes the group p a partition of these CPUs (root, isolated, member; none: takes it away) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define MOST 64
#define SAMPLES 256
struct sample { double at, used; int cpu, pad; };
struct shared {
    volatile double begin;
    volatile int stop, ready, word[MOST], chosen[MOST], count[MOST];
    struct sample s[MOST][SAMPLES];
};
static struct shared *sh;
static int pipes[MOST][2], cpus;
static double get(clockid_t c) { struct timespec t; clock_gettime(c, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static double now(void) { return get(CLOCK_MONOTONIC); }
static void work(void) { for (volatile int i = 0; i < 2000; i++); }
static void until(double t) { while (now() < t) work(); }
static void put(const char *p, const char *s) {
    int f = open(p, O_WRONLY);
    if (f < 0 || write(f, s, strlen(s)) < 0) printf("fail %s %s\n", p, s);
    if (f >= 0) close(f);
}
static cpu_set_t set_of(const char *t) {
    cpu_set_t set; CPU_ZERO(&set);
    if (!strcmp(t, "all")) { for (int i = 0; i < cpus; i++) CPU_SET(i, &set); return set; }
    while (*t && *t != '-') {
        char *e; int a = strtol(t, &e, 10), b = a;
        if (*e == '-') b = strtol(e + 1, &e, 10);
        for (; a <= b; a++) CPU_SET(a, &set);
        t = *e == ',' ? e + 1 : e;
    }
    return set;
}
static void may(int pid, cpu_set_t set) { if (sched_setaffinity(pid, sizeof set, &set)) perror("affinity"); }
static void only(int cpu) { cpu_set_t s; CPU_ZERO(&s); CPU_SET(cpu, &s); may(0, s); }
static void busy(const char *t) {
    cpu_set_t set = set_of(t);
    for (int i = 0; i < cpus; i++)
        if (CPU_ISSET(i, &set) && fork() == 0) { only(i); while (!sh->stop) work(); _exit(0); }
}
static void clear(void) { sh->begin = 0; sh->stop = 0; sh->ready = 0; for (int i = 0; i < MOST; i++) sh->word[i] = 0, sh->chosen[i] = -1, sh->count[i] = 0; }
static void end(void) { sh->stop = 1; while (wait(0) > 0); usleep(100000); }
static void told(int n) { for (int i = 0; i < n; i++) printf("%c%d", i ? ',' : ' ', sh->chosen[i]); printf("\n"); }

static void wake(char *kind, int waker, char *busies, char *prevs) {
    int futex = !strcmp(kind, "futex"), n = 0;
    pid_t pid[MOST];
    for (char *p = strtok(prevs, ","); p; p = strtok(0, ",")) {
        int prev = atoi(p);
        if (!futex && pipe(pipes[n])) perror("pipe");
        /* A new task remembers its parent's CPU as one that it used recently. */
        only(prev);
        if ((pid[n] = fork()) == 0) {
            __atomic_fetch_add(&sh->ready, 1, __ATOMIC_SEQ_CST);
            char c;
            if (futex) while (!sh->word[n]) syscall(SYS_futex, &sh->word[n], FUTEX_WAIT, 0, 0, 0, 0);
            else if (read(pipes[n][0], &c, 1) != 1) perror("read");
            sh->chosen[n] = sched_getcpu();
            until(now() + 0.001);
            _exit(0);
        }
        n++;
    }
    only(cpus - 1);
    while (sh->ready < n) usleep(5000);
    usleep(20000);
    for (int i = 0; i < n; i++) may(pid[i], set_of("all"));
    busy(busies);
    if (fork() == 0) {
        only(waker);
        double t = now() + 0.1;
        for (int i = 0; i < n; i++, t += 0.0107) {
            until(t);
            sh->word[i] = 1;
            if (futex) syscall(SYS_futex, &sh->word[i], FUTEX_WAKE, 1, 0, 0, 0);
            else { if (write(pipes[i][1], "x", 1) != 1) perror("write"); usleep(3000); }
        }
        until(t);
        _exit(0);
    }
    usleep(130000 + 10700 * n);
    end();
    for (int i = 0; i < n && !futex; i++) close(pipes[i][0]), close(pipes[i][1]);
    told(n);
}

static void forks(int parent, char *busies, int n) {
    busy(busies);
    if (fork() == 0) {
        only(parent);
        double t = now() + 0.1;
        until(t);
        may(0, set_of("all"));
        for (int i = 0; i < n; i++) {
            if (fork() == 0) { sh->chosen[i] = sched_getcpu(); while (!sh->stop) work(); _exit(0); }
            until(t += 0.004);
        }
        while (!sh->stop) work();
        while (wait(0) > 0);
        _exit(0);
    }
    usleep(120000 + 4000 * n);
    end();
    told(n);
}

static void execs(int from, char *busies, int n) {
    int fds[2], got[2]; pid_t pid[MOST];
    busy(busies);
    if (pipe(fds)) perror("pipe");
    only(from);
    for (int i = 0; i < n; i++)
        if ((pid[i] = fork()) == 0) {
            char number[16], fd[16];
            sprintf(number, "%d", i); sprintf(fd, "%d", fds[1]);
            __atomic_fetch_add(&sh->ready, 1, __ATOMIC_SEQ_CST);
            while (!sh->word[i]) syscall(SYS_futex, &sh->word[i], FUTEX_WAIT, 0, 0, 0, 0);
            may(0, set_of("all"));
            execl("/proc/self/exe", "told", number, fd, (char *)0);
            _exit(1);
        }
    only(cpus - 1);
    while (sh->ready < n) usleep(5000);
    usleep(100000);
    for (int i = 0; i < n; i++) {
        sh->word[i] = 1;
        syscall(SYS_futex, &sh->word[i], FUTEX_WAKE, 1, 0, 0, 0);
        if (read(fds[0], got, sizeof got) == sizeof got) sh->chosen[got[0]] = got[1];
        usleep(4000);
    }
    for (int i = 0; i < n; i++) kill(pid[i], SIGKILL);
    end();
    close(fds[0]), close(fds[1]);
    told(n);
}

static void hog(int i, double secs) {
    double next = sh->begin; int n = 0;
    for (;;) {
        double at = now();
        if (at >= next && n < SAMPLES) {
            struct sample *s = &sh->s[i][n++];
            s->at = at; s->used = get(CLOCK_PROCESS_CPUTIME_ID); s->cpu = sched_getcpu();
            while (next <= at) next += 0.010;
            sh->count[i] = n;
        }
        if (at > sh->begin + secs + 0.2) _exit(0);
        work();
    }
}
static double used_at(int i, double t) {
    int n = sh->count[i];
    for (int k = 1; k < n; k++) if (sh->s[i][k].at >= t) {
        struct sample *a = &sh->s[i][k - 1], *b = &sh->s[i][k];
        return a->at > t ? a->used : a->used + (b->used - a->used) * (t - a->at) / (b->at - a->at);
    }
    return n ? sh->s[i][n - 1].used : 0;
}
static int cpu_at(int i, double t) {
    int n = sh->count[i];
    for (int k = 0; k < n; k++) if (sh->s[i][k].at >= t) return sh->s[i][k].cpu;
    return n ? sh->s[i][n - 1].cpu : -1;
}
static void spread(double secs, char *what) {
    cpu_set_t allowed[MOST]; int n = 0; char *save;
    for (char *p = strtok_r(what, ";", &save); p; p = strtok_r(0, ";", &save)) {
        int count; char begin[64], may_be[64], group[8] = "";
        sscanf(p, "%d:%63[^:]:%63[^:]:%7s", &count, begin, may_be, group);
        cpu_set_t on = set_of(begin); int cpu = -1;
        while (count--) {
            /* Its CPUs in turn. */
            do cpu = (cpu + 1) % cpus; while (!CPU_ISSET(cpu, &on));
            allowed[n] = set_of(may_be);
            if (fork() == 0) {
                if (*group) put("/sys/fs/cgroup/p/cgroup.procs", "0");
                only(cpu);
                __atomic_fetch_add(&sh->ready, 1, __ATOMIC_SEQ_CST);
                while (!sh->word[0]) syscall(SYS_futex, &sh->word[0], FUTEX_WAIT, 0, 0, 0, 0);
                may(0, allowed[n]);
                hog(n, secs);
            }
            n++;
        }
    }
    while (sh->ready < n) usleep(5000);
    usleep(150000);
    /* All wake where they are, and are free then. */
    sh->word[0] = 1;
    sh->begin = now();
    syscall(SYS_futex, &sh->word[0], FUTEX_WAKE, MOST, 0, 0, 0);
    end();
    double t = sh->begin;
    static const double at[] = { 0.01, 0.05, 0.1, 0.2, 0.4, 0.8 };
    for (unsigned k = 0; k < sizeof at / sizeof *at && at[k] < secs; k++) {
        printf(" %.2f:", at[k]);
        for (int i = 0; i < n; i++) printf("%c%d", i ? ',' : ' ', cpu_at(i, t + at[k]));
    }
    printf(" used:");
    for (int i = 0; i < n; i++) printf("%c%.3f", i ? ',' : ' ', used_at(i, t + secs) - used_at(i, t + secs / 2));
    printf("\n");
}
static void show(const char *p) {
    char b[256]; int f = open(p, O_RDONLY), n = f < 0 ? 0 : read(f, b, 255);
    if (f >= 0) close(f);
    b[n > 0 ? n : 0] = 0; printf("%s %s%s", p, b, n > 0 ? "" : "\n");
}
int main(int count, char **words) {
    if (count == 3 && !strcmp(words[0], "told")) {
        int told[2] = { atoi(words[1]), sched_getcpu() };
        if (write(atoi(words[2]), told, sizeof told) < 0) return 1;
        for (;;) work();
    }
    mount("proc", "/proc", "proc", 0, 0); mount("sys", "/sys", "sysfs", 0, 0);
    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, 0);
    setvbuf(stdout, 0, _IONBF, 0);
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, 0);
    cpus = sysconf(_SC_NPROCESSORS_ONLN);
    printf("RUN cpus %d\n", cpus);
    show("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list");
    show("/sys/devices/system/cpu/cpu2/cache/index3/shared_cpu_list");
    put("/sys/kernel/debug/sched/verbose", "Y");
    only(cpus - 1);
    for (int i = 0; i < 4; i++) {
        char p[128];
        sprintf(p, "/sys/kernel/debug/sched/domains/cpu2/domain%d/name", i); show(p);

    }
    sh = mmap(0, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset((void *)sh, 0, sizeof *sh);
    FILE *in = fopen("/scenes", "r"); char line[1024], a[64], b[64], c[512]; int x;
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        clear();
        printf("%s =", line);
        if (sscanf(line, "wake %63s %d %63s %511s", a, &x, b, c) == 4) wake(a, x, b, c);
        else if (sscanf(line, "fork %d %63s %63s", &x, b, c) == 3) forks(x, b, atoi(c));
        else if (sscanf(line, "exec %d %63s %63s", &x, b, c) == 3) execs(x, b, atoi(c));
        else if (sscanf(line, "spread %63s %511s", a, c) == 2) spread(atof(a), c);
        else if (sscanf(line, "partition %63s %63s", a, b) == 2) {
            put("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
            mkdir("/sys/fs/cgroup/p", 0755);
            put("/sys/fs/cgroup/p/cpuset.cpus", b);
            put("/sys/fs/cgroup/p/cpuset.cpus.partition", a);
            show("/sys/fs/cgroup/p/cpuset.cpus.partition");
            usleep(100000);
        } else if (!strcmp(line, "partition none")) {
            rmdir("/sys/fs/cgroup/p"); put("/sys/fs/cgroup/cgroup.subtree_control", "-cpuset"); usleep(100000); printf(" \n");
        } else printf(" ?\n");
    }
    sync(); reboot(RB_POWER_OFF); reboot(RB_AUTOBOOT);
}
