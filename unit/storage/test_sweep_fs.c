/* Every file-system call of every scenario fails once, and for good: with each error it can give, not
 * done or done and told as failed. Nothing crashes, nothing leaks, nothing hangs; what was acked stays,
 * and a log whose volume is well again acks again or is let go.
 *
 * A point is (scenario, call, error, once or for good). KAAS_SOAK=1 runs all of them; otherwise a part
 * of them that differs from run to run (KAAS_SEED). KAAS_POINT=scenario:call:error:mode runs one. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_hash.h"
#include "sc.h"

/* What a call of each kind may answer. */
struct answer {
    int error; /* errno, or ST_SHORT */
    bool late; /* it was done all the same */
};
enum { ANSWERS = 8 };
static const struct {
    const char *name;
    struct answer a[ANSWERS];
} kinds[ST_OPS] = {
    [ST_OPEN] = {"open", {{EIO, 0}, {ESTALE, 0}, {EMFILE, 0}, {EACCES, 0}}},
    [ST_CREATE] =
        {"create",
         {{EIO, 0}, {ENOSPC, 0}, {EROFS, 0}, {EDQUOT, 0}, {EMFILE, 0}, {EIO, 1}, {EEXIST, 1}}},
    [ST_PWRITE] = {"write",
                   {{EIO, 0}, {ENOSPC, 0}, {EDQUOT, 0}, {ESTALE, 0}, {EINTR, 0}, {ST_SHORT, 0}}},
    [ST_PREAD] = {"read", {{EIO, 0}, {ESTALE, 0}, {EINTR, 0}, {ST_SHORT, 0}}},
    [ST_DATASYNC] = {"sync",
                     {{EIO, 0}, {ENOSPC, 0}, {EDQUOT, 0}, {ESTALE, 0}, {EIO, 1}, {EINTR, 1}}},
    [ST_SYNCDIR] = {"syncdir", {{EIO, 0}, {ESTALE, 0}, {EMFILE, 0}, {EACCES, 0}, {EIO, 1}}},
    [ST_LINK] =
        {"link",
         {{EIO, 0}, {EIO, 1}, {EEXIST, 1}, {ENOSPC, 0}, {EROFS, 0}, {ESTALE, 0}, {ENOENT, 1}}},
    [ST_UNLINK] = {"unlink", {{EIO, 0}, {EIO, 1}, {ENOENT, 1}, {EROFS, 0}, {ESTALE, 0}}},
    [ST_RMDIR] = {"rmdir", {{ENOTEMPTY, 0}, {EIO, 0}, {EIO, 1}, {EROFS, 0}}},
    [ST_RENAME] = {"rename", {{EIO, 0}, {EIO, 1}, {ENOSPC, 0}, {ENOENT, 1}, {EROFS, 0}}},
    [ST_MKDIR] = {"mkdir", {{EIO, 0}, {EIO, 1}, {EEXIST, 1}, {ENOSPC, 0}, {EROFS, 0}, {EDQUOT, 0}}},
    [ST_EXTEND] = {"extend", {{EIO, 0}, {EIO, 1}, {ESTALE, 0}, {EROFS, 0}, {ENOENT, 0}}},
    [ST_STAT] = {"stat", {{EIO, 0}, {ESTALE, 0}, {EACCES, 0}}},
    [ST_LIST] = {"list", {{EIO, 0}, {ESTALE, 0}, {EMFILE, 0}, {ST_SHORT, 0}}},
    [ST_CLOSE] = {"close", {{EIO, 1}, {ENOSPC, 1}}},
};

static struct {
    _Atomic bool armed, for_good;
    _Atomic uint64_t calls, at;
    _Atomic uint32_t answer;
    _Atomic int op; /* of the call that failed first; -1 = none did */
    _Atomic uint64_t failed;
} fault;
static uint64_t hits[ST_OPS][ANSWERS][2];
enum { CALLS = 4096 };
static uint8_t kind_of[CALLS]; /* of each call when nothing fails */
static char point[128]; /* for the watchdog */
static _Thread_local int late;

static uint32_t answers_of(enum st_op op)
{
    uint32_t n = 0;
    while (n < ANSWERS && kinds[op].a[n].error) {
        n++;
    }
    return n;
}

/* What this call answers, or NULL: what it does. */
static const struct answer *meet(enum st_op op)
{
    if (!atomic_load(&fault.armed)) {
        return NULL;
    }
    uint64_t n = atomic_fetch_add(&fault.calls, 1) + 1;
    int none = -1;
    if (atomic_load(&fault.at) == 0 && n < CALLS) {
        kind_of[n] = (uint8_t)op;
    }
    if (n == atomic_load(&fault.at)) {
        atomic_compare_exchange_strong(&fault.op, &none, (int)op);
    } else if (!atomic_load(&fault.for_good) || atomic_load(&fault.op) != (int)op) {
        return NULL;
    }
    const struct answer *a = &kinds[op].a[atomic_load(&fault.answer) % answers_of(op)];
    /* For good, an interrupted or short call would only be tried again for ever. */
    bool repeated = a->error == EINTR || a->error == ST_SHORT;
    if (n != atomic_load(&fault.at) && repeated) {
        return NULL;
    }
    atomic_fetch_add(&fault.failed, 1);
    hits[op][a - kinds[op].a][atomic_load(&fault.for_good)]++;
    return a;
}

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    (void)path;
    const struct answer *a = meet(op);
    late = a && a->late ? -a->error : 0;
    return !a || a->late ? 0 : a->error == ST_SHORT ? ST_SHORT : -a->error;
}

static int after(void *ctx, enum st_op op, const char *path, int rc)
{
    (void)ctx;
    (void)path;
    if (op == ST_CLOSE) {
        const struct answer *a = meet(op);
        return a ? -a->error : rc;
    }
    int told = late ? late : rc;
    late = 0;
    return told;
}

static const struct st_hooks hooks = {.before = before, .after = after};

static void on_alarm(int sig)
{
    (void)sig;
    static const char text[] = "\nhangs at ";
    if (write(2, text, sizeof(text) - 1) > 0 && write(2, point, strlen(point)) > 0) {
        abort();
    }
    abort();
}

enum where { LOCAL, NETWORK, DISK };

/* One run. at = 0: nothing fails; returns how many calls there were. */
static uint64_t run(const struct sc_scenario *sc, uint64_t at, uint32_t answer, bool for_good,
                    enum where where, int *ret_errors)
{
    static struct sc s;
    snprintf(point, sizeof(point), "%s:%llu:%u:%d\n", sc->name, (unsigned long long)at, answer,
             for_good);
    alarm(90);
    sc_begin(&s, where != DISK, &hooks);
    if (s.mem) {
        st_mem_network(s.mem, where == NETWORK);
    }
    if (sc->setup) {
        sc->setup(&s);
    }
    fault.calls = fault.failed = 0;
    fault.at = at;
    fault.answer = answer;
    fault.for_good = for_good;
    fault.op = -1;
    s.faults = at > 0;
    atomic_store(&fault.armed, true);
    sc->run(&s);
    atomic_store(&fault.armed, false);
    sc_finish(&s, sc);
    alarm(0);
    if (s.errors) {
        fprintf(stderr, "%s: call %llu (%s) answer %u %s: KAAS_POINT=%s", sc->name,
                (unsigned long long)at, fault.op >= 0 ? kinds[fault.op].name : "none", answer,
                for_good ? "for good" : "once", point);
    }
    *ret_errors += s.errors;
    return fault.calls;
}

static int fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

/* step: every how manieth point. */
static void sweep(enum where where, uint64_t step)
{
    static const char *const names[] = {"memory, local", "memory, network", "disk"};
    uint64_t points = 0, reached = 0, number = kt_seed();
    int open_before, errors = 0;
    const char *only = getenv("KAAS_POINT");
    memset(hits, 0, sizeof(hits));
    signal(SIGALRM, on_alarm);
    run(&sc_scenarios[0], 0, 0, false, where, &errors); /* makes what stays: libuv's signal pipe */
    open_before = fds();
    for (int i = 0; i < sc_n_scenarios; i++) {
        const struct sc_scenario *sc = &sc_scenarios[i];
        if (only && strncmp(only, sc->name, strcspn(only, ":")) != 0) {
            continue;
        }
        uint64_t calls = run(sc, 0, 0, false, where, &errors);
        KT_REQUIRE(calls > 0 && calls < CALLS);
        for (uint64_t at = 1; at <= calls; at++) {
            for (uint32_t v = 0; v < 2 * answers_of((enum st_op)kind_of[at]); v++) {
                char name[128];
                snprintf(name, sizeof(name), "%s:%llu:%u:%u", sc->name, (unsigned long long)at,
                         v / 2, v % 2);
                if (only ? strcmp(only, name) != 0 : kc_hash64_mix(number++, 1) % step != 0) {
                    continue;
                }
                run(sc, at, v / 2, v % 2, where, &errors);
                points++;
                reached += atomic_load(&fault.failed) > 0;
            }
        }
    }
    KT_EQ(errors, 0);
    KT_EQ(fds(), open_before);
    printf("%llu points, %llu of them reached (%s)\n", (unsigned long long)points,
           (unsigned long long)reached, names[where]);
    for (enum st_op op = 0; op < ST_OPS; op++) {
        printf("  %-8s", kinds[op].name);
        for (uint32_t a = 0; a < answers_of(op); a++) {
            printf(" %s%s %llu+%llu", kinds[op].a[a].late ? "done," : "",
                   kinds[op].a[a].error == ST_SHORT ? "short"
                                                    : strerrorname_np(kinds[op].a[a].error),
                   (unsigned long long)hits[op][a][0], (unsigned long long)hits[op][a][1]);
            KT_TRUE(only || step > 1 || (hits[op][a][0] > 0 && hits[op][a][1] > 0));
        }
        printf("\n");
    }
}

static uint64_t stride(uint64_t ci)
{
    return getenv("KAAS_SOAK") ? 1 : ci;
}

static void every_call_fails_on_a_local_file_system(void)
{
    sweep(LOCAL, stride(37));
}

static void every_call_fails_on_a_network_file_system(void)
{
    sweep(NETWORK, stride(37));
}

static void calls_fail_on_a_real_file_system(void)
{
    sweep(DISK, stride(41) * 5);
}

KT_MAIN("sweep_fs", KT(every_call_fails_on_a_local_file_system),
        KT(every_call_fails_on_a_network_file_system), KT(calls_fail_on_a_real_file_system))
