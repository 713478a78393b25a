/* Every allocation of a broker's start fails, once and for good: it serves all the same, or it ends with
 * an exit code and says why; the next start, with memory, has every topic and every acked record.
 *
 * KAAS_SOAK=1 runs many more points; KAAS_POINT=n:mode runs one, many times over. */
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "sw_parts.h"

enum {
    POINTS = 20, /* about so many are run; … */
    POINTS_SOAK = 1500, /* most allocations are the same for each of fifty slots */
    PATIENCE_MS = 60000 /* until a start is over */
};

static struct sw_broker broker;
static struct sw sw;

/* Starts, until it serves or has ended; returns how many allocations there were. */
static uint64_t start(uint64_t n, bool for_good, bool *ret_refused)
{
    int64_t until = kc_mono_ms() + (n == UINT64_MAX ? PATIENCE_MS : for_good ? 300 : 3000);
    kc_mem_fail_nth(n, for_good);
    kc_mem_spare(false); /* the configuration is read on this thread */
    *ret_refused = !sw_start(&broker);
    kc_mem_spare(true);
    for (bool done = *ret_refused; !done && kc_mono_ms() < until; poll(NULL, 0, 2)) {
        if (!for_good) { /* a broker that cannot start accepts nobody */
            done = sw_dial(&sw) && sw_ready(&sw);
            sw_hang_up(&sw);
        }
        done |= atomic_load(&broker.ended);
    }
    uint64_t count = kc_mem_try_count();
    kc_mem_fail_nth(0, false);
    return count;
}

static void check_healthy(void)
{
    KT_REQUIRE(sw_start(&broker));
    sw_await(&sw, "start", sw_ready);
    sw_await(&sw, "verify", sw_verify);
    KT_EQ(sw_stop(&broker), 0);
}

static void point(uint64_t n, bool for_good)
{
    bool refused;
    int errors = sw.errors;
    sw.faults = true;
    start(n, for_good, &refused);
    sw.faults = false;
    if (!refused && !atomic_load(&broker.ended)) { /* with memory back it gets there by itself */
        sw_await(&sw, "the start goes on", sw_ready);
        sw_await(&sw, "verify", sw_verify);
    }
    if (!refused) {
        sw_stop(&broker);
    }
    if (sw.errors > errors) {
        fprintf(stderr, "KAAS_POINT=%llu:%d\n", (unsigned long long)n, for_good);
    }
}

static void every_allocation_of_a_start_fails(void)
{
    const char *only = getenv("KAAS_POINT");
    uint64_t points = 0, number = kt_seed();
    bool refused;
    if (!getenv("KAAS_LOG_LEVEL")) {
        kc_log_set_level(KC_ERROR + 1);
    }
    kc_mem_spare(true);
    sw_make(&broker);
    sw = (struct sw){.broker = &broker, .producer_id = -1};
    start(UINT64_MAX, false, &refused);
    sw_await(&sw, "produce", sw_produce_acks_all);
    sw_await(&sw, "commit", sw_offsets);
    KT_EQ(sw_stop(&broker), 0);
    uint64_t count = start(UINT64_MAX, false, &refused);
    KT_EQ(sw_stop(&broker), 0);
    uint64_t want = getenv("KAAS_SOAK") ? POINTS_SOAK : POINTS;
    uint64_t step = KC_MAX((uint64_t)1, 2 * count / want);
    for (uint64_t v = 2; v < 2 * (count + 1); v++) {
        char name[48];
        snprintf(name, sizeof(name), "%llu:%d", (unsigned long long)v / 2, (int)(v % 2));
        bool mine = only && strcmp(only, name) == 0;
        int times = mine ? 50 : !only && kc_hash64_mix(number++, 1) % step == 0 ? 1 : 0;
        for (int k = 0; k < times; k++, points++) {
            point(v / 2, v % 2);
        }
    }
    check_healthy();
    sw_remove(&broker);
    KT_EQ(sw.errors, 0);
    KT_TRUE(points > 0);
    printf("%llu points of %llu allocations\n", (unsigned long long)points,
           (unsigned long long)count);
}

int main(int argc, char **argv)
{
    static const struct kt_case cases[] = {KT(every_allocation_of_a_start_fails)};
    json_set_alloc_funcs(kc_try_alloc, kc_free);
    return kt_run("start", cases, KC_ARRAY_LEN(cases), argc, argv);
}
