/* Every allocation that may fail does so, once and for good, in every scenario: nothing crashes, nothing
 * leaks or hangs, what was acked stays, and with memory back a log acks again or is let go.
 *
 * jansson allocates through the same door here. KAAS_SOAK=1 runs every point; KAAS_POINT=scenario:n:mode
 * runs one. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "sc.h"

static char point[128]; /* for the watchdog */

static void on_alarm(int sig)
{
    (void)sig;
    if (write(2, point, strlen(point)) < 0) {
        _exit(3);
    }
    abort();
}

/* One run; returns how many allocations could have failed. n = UINT64_MAX: none does. */
static uint64_t run(const struct sc_scenario *sc, uint64_t n, bool for_good, int *ret_errors)
{
    static struct sc s;
    snprintf(point, sizeof(point), "%s:%llu:%d\n", sc->name, (unsigned long long)n, for_good);
    alarm(90);
    sc_begin(&s, true, NULL);
    if (sc->setup) {
        sc->setup(&s);
    }
    s.faults = n != UINT64_MAX;
    kc_mem_fail_nth(n, for_good);
    sc->run(&s);
    uint64_t count = kc_mem_try_count();
    kc_mem_fail_nth(0, false);
    sc_finish(&s, sc);
    alarm(0);
    if (s.errors) {
        fprintf(stderr, "KAAS_POINT=%s", point);
    }
    *ret_errors += s.errors;
    return count;
}

static void every_allocation_fails(void)
{
    const char *only = getenv("KAAS_POINT");
    uint64_t step = getenv("KAAS_SOAK") ? 1 : 4, points = 0, number = kt_seed();
    uint64_t total = 0;
    int errors = 0;
    signal(SIGALRM, on_alarm);
    kc_json_setup(); /* as the program does */
    for (int i = 0; i < sc_n_scenarios; i++) {
        const struct sc_scenario *sc = &sc_scenarios[i];
        uint64_t count = run(sc, UINT64_MAX, false, &errors);
        total += count;
        for (uint64_t v = 2; v < 2 * (count + 1); v++) {
            char name[128];
            snprintf(name, sizeof(name), "%s:%llu:%d", sc->name, (unsigned long long)v / 2,
                     (int)(v % 2));
            if (only ? strcmp(only, name) == 0 : kc_hash64_mix(number++, 1) % step == 0) {
                run(sc, v / 2, v % 2, &errors);
                points++;
            }
        }
    }
    KT_EQ(errors, 0);
    KT_TRUE(only || points * step * 2 > total);
    printf("%llu points of %llu allocations\n", (unsigned long long)points,
           (unsigned long long)total);
}

KT_MAIN("sweep_mem", KT(every_allocation_fails))
