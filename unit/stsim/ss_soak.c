#include "ss_soak.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FOUND = 42, JOBS_MAX = 64, BAD_MAX = 5, HANGS_S = 120 };

double ss_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Of this process: what else runs on the machine does not count. */
static double own_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- sums ---- */

static void add_all(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size / sizeof(uint64_t); i++) {
        ((uint64_t *)to)[i] += ((const uint64_t *)from)[i];
    }
}

void ss_sum_add(struct ss_sum *to, const struct ss_run *r)
{
    to->runs++;
    add_all(&to->counts, &r->counts, sizeof(r->counts));
    add_all(&to->hits, &r->hits, sizeof(r->hits));
    add_all(to->effects, r->effects, sizeof(r->effects));
    to->takeovers += r->takeovers;
    to->switches += r->switches;
    to->virtual_ms += r->virtual_ms - 1000000;
}

void ss_sum_print(const struct ss_sum *s, double seconds, double cpu)
{
    const struct ss_counts *c = &s->counts;
    double runs = (double)KC_MAX(s->runs, 1u);
    printf("%" PRIu64 " runs in %.1f s: %.1f a second, %.1f a second of processor time\n", s->runs,
           seconds, runs / seconds, cpu > 0 ? runs / cpu : 0.0);
    printf("%" PRId64 " virtual s, %" PRIu64 " switches; %.0f acks and %.0f claims a run\n",
           s->virtual_ms / 1000, s->switches, (double)c->acks / runs, (double)c->claims / runs);
    printf("appends %" PRIu64 " (repeats %" PRIu64 "), acks %" PRIu64 ", refused %" PRIu64
           ", reads %" PRIu64 " of %" PRIu64 " batches\n",
           c->appends, c->repeats, c->acks, c->refused, c->reads, c->batches_read);
    printf("coordinator: commits %" PRIu64 ", fetches %" PRIu64 "\n", c->commits, c->fetches);
    printf(
        "takeovers %" PRIu64 ", claims %" PRIu64 ", seals %" PRIu64 ", copies %" PRIu64
        ", rolls %" PRIu64 ", trims %" PRIu64 ", topics deleted %" PRIu64 ", frames %" PRIu64 "\n",
        s->takeovers, c->claims, c->seals, c->copies, c->rolls, c->trims, c->deletions, c->frames);
    printf("acked and lost, where flush.messages allows it: %" PRIu64 "\n", c->lost);
    printf("compactions %" PRIu64 " of %" PRIu64 " records, empty batches read %" PRIu64
           "; while a cleaner works: claims %" PRIu64 ", seals %" PRIu64 "\n",
           c->compacts, c->cleaned, c->batches_empty, c->claims_cleaning, c->seals_cleaning);
    for (int e = 0; e < SS_EFFECTS; e++) {
        printf("%s%s %" PRIu64, e ? ", " : "", ss_effect_name((enum ss_effect)e), s->effects[e]);
    }
    printf("\n");
}

/* ---- workers ---- */

struct worker {
    pid_t pid;
    uint64_t seed; /* under way */
    uint64_t done; /* how many of its seeds are over */
    uint64_t bad; /* of them violated something */
    double since;
    struct ss_sum sum;
};

struct soak {
    uint64_t from, n;
    int jobs;
    uint64_t bad;
    struct worker *w; /* shared with the processes */
};

static void work(const struct soak *s, int i)
{
    struct worker *w = &s->w[i];
    for (;;) {
        uint64_t nth = (uint64_t)i + w->done * (uint64_t)s->jobs;
        if (nth >= s->n || w->bad >= BAD_MAX) {
            return;
        }
        struct ss_run r = {.seed = s->from + nth};
        w->seed = r.seed;
        w->since = ss_seconds();
        bool ok = ss_world_run(&r);
        ss_sum_add(&w->sum, &r);
        w->done++;
        if (!ok) {
            w->bad++;
            printf("seed %" PRIu64 ": %s\n", r.seed, r.broken);
            fflush(stdout);
        }
    }
}

static void start(const struct soak *s, int i)
{
    struct worker *w = &s->w[i];
    w->since = ss_seconds();
    fflush(stdout);
    pid_t pid = fork();
    KC_ASSERT(pid >= 0);
    if (pid == 0) {
        work(s, i);
        fflush(stdout);
        _exit(0);
    }
    w->pid = pid;
}

/* A process that died left a seed behind; another one goes on after it. */
static void ended(struct soak *s, int i, int status)
{
    struct worker *w = &s->w[i];
    w->pid = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return;
    }
    printf("seed %" PRIu64 ": the process died (signal %d)\n", w->seed,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    w->done++;
    if (++w->bad < BAD_MAX) {
        start(s, i);
    }
}

/* Waits for all; ends what hangs. */
static void supervise(struct soak *s)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    for (bool any = true; any;) {
        any = false;
        nanosleep(&pause, NULL);
        for (int i = 0; i < s->jobs; i++) {
            struct worker *w = &s->w[i];
            int status = 0;
            if (w->pid && waitpid(w->pid, &status, WNOHANG) == w->pid) {
                ended(s, i, status);
            } else if (w->pid && ss_seconds() - w->since > HANGS_S) {
                printf("seed %" PRIu64 ": no end after %d s\n", w->seed, HANGS_S);
                kill(w->pid, SIGKILL);
                w->since = ss_seconds();
            }
            any = any || w->pid;
        }
    }
}

bool ss_soak(uint64_t from, uint64_t n, int jobs)
{
    struct soak s = {.from = from, .n = n, .jobs = KC_MAX(1, KC_MIN(jobs, (int)JOBS_MAX))};
    size_t size = sizeof(*s.w) * (size_t)s.jobs;
    double start_s = ss_seconds(), cpu = cpu_seconds();
    s.w = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    KC_ASSERT(s.w != MAP_FAILED);
    printf("seeds %" PRIu64 " to %" PRIu64 " in %d processes\n", from, from + n - 1, s.jobs);
    for (int i = 0; i < s.jobs; i++) {
        start(&s, i);
    }
    supervise(&s);
    struct ss_sum sum = {0};
    for (int i = 0; i < s.jobs; i++) {
        add_all(&sum, &s.w[i].sum, sizeof(sum));
        s.bad += s.w[i].bad;
    }
    munmap(s.w, size);
    ss_sum_print(&sum, ss_seconds() - start_s, cpu_seconds() - cpu);
    uint64_t need = n >= SS_FULL_SEEDS ? SS_FULL_HITS : n / (SS_FULL_SEEDS / SS_FULL_HITS) * 8 / 10;
    /* So few runs tell nothing of the rare pairs. */
    uint64_t rare = ss_matrix_print(&sum.hits, n >= SS_FULL_SEEDS / 20 ? need : 0);
    printf("%" PRIu64 " runs without a violation, %" PRIu64 " with\n",
           sum.runs - KC_MIN(sum.runs, s.bad), s.bad);
    return s.bad == 0 && rare == 0 && sum.runs == n;
}

/* ---- flaws ---- */

const struct ss_flaw ss_flaws[] = {
    {"a check from the cache", SS_SOUND, SS_STAT_CACHED},
    {"a sync that does nothing", SS_SOUND, SS_SYNC_NOTHING},
    {"a link that overwrites", SS_SOUND, SS_LINK_OVERWRITES},
    {"M1 scan before fence", SS_M1_SCAN_BEFORE_FENCE, SS_HONEST},
    {"M2 check before the write", SS_M2_CHECK_BEFORE_WRITE, SS_HONEST},
    {"M3 no check", SS_M3_NO_CHECK, SS_HONEST},
    {"M4 claim without fence", SS_M4_NO_FENCE, SS_HONEST},
    {"M5 seal overwritten", SS_M5_SEAL_OVERWRITTEN, SS_HONEST},
    {"M6 own length after a lost race", SS_M6_OWN_LENGTH, SS_HONEST},
    {"M7 a gap in the chain", SS_M7_GAP, SS_HONEST},
    {"M8 unlink before the record", SS_M8_UNLINK_FIRST, SS_HONEST},
    {"M9 second file, no record", SS_M9_NO_RECORD, SS_HONEST},
    {"M9B ROLL at the issued length", SS_M9B_ISSUED, SS_HONEST},
    {"M9D ROLL, scan by size", SS_M9D_BY_SIZE, SS_HONEST},
    {"M10 ack before its ROLL", SS_M10_ACK_BEFORE_ROLL, SS_HONEST},
    {"M12 empty seal without a fence", SS_M12_EMPTY_SEAL, SS_HONEST},
    {"M13 on after a lost claim", SS_M13_GO_ON, SS_HONEST},
    {"C1 no copy of the tail", SS_C1_NO_COPY, SS_HONEST},
    {"C3 copy not synced", SS_C3_COPY_NOT_SYNCED, SS_HONEST},
    {"C4 more unconfirmed than W", SS_C4_UNCONFIRMED, SS_HONEST},
    {"C4 a sync counts for what came later", SS_C4_BESIDE, SS_HONEST},
    {"SYNC by who wrote nothing", SS_C_SYNC_ONLY, SS_HONEST},
    {"I10 an answer without a check", SS_I10_NO_CHECK, SS_HONEST},
    {"K1 unlink before the COMPACT", SS_K1_UNLINK_FIRST, SS_HONEST},
    {"K2 replacement not synced", SS_K2_NOT_SYNCED, SS_HONEST},
    {"K3 on after a lost COMPACT", SS_K3_GO_ON, SS_HONEST},
    {"K4 doubt taken for loss", SS_K4_DOUBT_IS_LOSS, SS_HONEST},
    {"K5 last record of a key", SS_K5_LAST_OF_KEY, SS_HONEST},
    {"K6 one batch of a producer", SS_K6_ONE_OF_PRODUCER, SS_HONEST},
    {"K7 moved to another offset", SS_K7_MOVED, SS_HONEST},
    {"K8 under another epoch", SS_K8_NEW_EPOCH, SS_HONEST},
    {"J1 ack before the journal's sync", SS_J1_ACK_FIRST, SS_HONEST},
    {"J2 journal gone, files not synced", SS_J2_NOT_BEHIND, SS_HONEST},
    {"J2 after an error of a sync behind", SS_J2_ERROR, SS_HONEST},
    {"J3 claimants ignore journals", SS_J3_NOT_READ, SS_HONEST},
    {"J3 journals read before the fence", SS_J3_EARLY, SS_HONEST},
    {"J4 a journal's second sync counts", SS_J4_BELIEVED, SS_HONEST},
    {"J5 own seal without a sync", SS_J5_OWN_SEAL, SS_HONEST},
};
const int ss_n_flaws = (int)KC_ARRAY_LEN(ss_flaws);

/* In a process of its own: a broken engine may also trip over an assertion, which counts as found. */
bool ss_flaw_find(const struct ss_flaw *f, uint64_t seed)
{
    double start_s = ss_seconds();
    fflush(stdout);
    pid_t pid = fork();
    KC_ASSERT(pid >= 0);
    if (pid == 0) {
        /* A run of a broken engine may have no end of its own. */
        const struct rlimit all = {.rlim_cur = SS_FLAW_SECONDS + 5,
                                   .rlim_max = SS_FLAW_SECONDS + 5};
        setrlimit(RLIMIT_CPU, &all);
        alarm(SS_FLAW_SECONDS * 10);
        for (uint64_t i = 0; own_seconds() < SS_FLAW_SECONDS; i++) {
            struct ss_run r = {.seed = seed + i, .mutant = f->mutant, .lie = f->lie};
            if (!ss_world_run(&r)) {
                printf("    run %" PRIu64 ": %s\n", i + 1, r.broken);
                fflush(stdout);
                _exit(FOUND);
            }
        }
        _exit(0);
    }
    int status = 0;
    bool found =
        waitpid(pid, &status, 0) == pid && ((WIFEXITED(status) && WEXITSTATUS(status) == FOUND) ||
                                            (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
    printf("  %-34s %s after %.1f s\n", f->name, found ? "found" : "NOT FOUND",
           ss_seconds() - start_s);
    if (WIFSIGNALED(status) && !found) {
        printf("    the process died (signal %d)\n", WTERMSIG(status));
    }
    return found;
}
