/* Every allocation of a broker's start fails, once and for good: it serves all the same, or it ends with
 * an exit code and says why; the next start, with memory, has every topic and every acked record.
 *
 * A point is a place: the calls that led to an allocation. Each fails the first time a start gets there;
 * most places are passed once for each of the fifty slots of a coordinator, in whatever order threads take.
 * KAAS_SOAK=1 runs all places, otherwise a few; KAAS_POINT=place:mode runs one, many times over. */
#include <execinfo.h>
#include <poll.h>
#include <stdlib.h>

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "sw_parts.h"

enum {
    POINTS = 20, /* about so many are run, or all */
    PLACES_MAX = 4096,
    FRAMES = 16, /* that make a place */
    RUNS = 3, /* that look for places: threads differ */
    PATIENCE_MS = 60000 /* until a start is over */
};

static struct sw_broker broker;
static struct sw sw;

/* ---- places ---- */

static struct {
    pthread_mutex_t lock; /* guards what follows */
    bool failing; /* at `want`, for good or once; else places are noted */
    bool for_good, met;
    uint64_t want;
    uint32_t n;
    uint64_t places[PLACES_MAX];
} sweep = {.lock = PTHREAD_MUTEX_INITIALIZER};

extern const char __executable_start[], etext[];

/* The calls on this thread's stack that are ours: the same number in every process. */
static uint64_t place_now(void)
{
    void *frames[FRAMES + 3];
    uint64_t place = 1;
    int n = backtrace(frames, FRAMES + 3);
    for (int i = 3; i < n; i++) { /* after this one, the hook and kc_try_* */
        const char *at = frames[i];
        if (at >= __executable_start && at < etext) {
            place = kc_hash64_mix((uint64_t)(at - __executable_start), place);
        }
    }
    return place;
}

static bool fails(void)
{
    uint64_t place = place_now();
    pthread_mutex_lock(&sweep.lock);
    bool here = sweep.failing && !sweep.met && place == sweep.want;
    sweep.met |= here;
    bool fail = here || (sweep.met && sweep.for_good);
    uint32_t i = 0;
    while (i < sweep.n && sweep.places[i] != place) {
        i++;
    }
    if (i == sweep.n && i < PLACES_MAX && !sweep.failing) {
        sweep.places[sweep.n++] = place;
    }
    pthread_mutex_unlock(&sweep.lock);
    return fail;
}

static bool met(void)
{
    pthread_mutex_lock(&sweep.lock);
    bool m = sweep.met;
    pthread_mutex_unlock(&sweep.lock);
    return m;
}

/* Starts, until it serves or has ended. place: where it fails; 0 = nowhere, places are noted. */
static void start(uint64_t place, bool for_good, bool *ret_refused)
{
    int64_t until = kc_mono_ms() + (!place ? PATIENCE_MS : for_good ? 300 : 3000);
    sweep.failing = place != 0;
    sweep.want = place;
    sweep.for_good = for_good;
    sweep.met = false;
    kc_mem_fail_chosen(fails);
    kc_mem_spare(false); /* the configuration is read on this thread */
    *ret_refused = !sw_start(&broker);
    kc_mem_spare(true);
    for (bool done = *ret_refused; !done && kc_mono_ms() < until; poll(NULL, 0, 2)) {
        if (!for_good || !met()) { /* a broker that cannot start accepts nobody */
            done = sw_dial(&sw) && sw_ready(&sw) && !(for_good && met());
            sw_hang_up(&sw);
        }
        done |= atomic_load(&broker.ended);
    }
    kc_mem_fail_nth(0, false);
}

static void check_healthy(void)
{
    KT_REQUIRE(sw_start(&broker));
    sw_await(&sw, "start", sw_ready);
    sw_await(&sw, "verify", sw_verify);
    KT_EQ(sw_stop(&broker), 0);
}

static void point(uint64_t place, bool for_good)
{
    bool refused;
    int errors = sw.errors;
    sw.faults = true;
    start(place, for_good, &refused);
    sw.faults = false;
    if (!refused && !atomic_load(&broker.ended)) { /* with memory back it gets there by itself */
        sw_await(&sw, "the start goes on", sw_ready);
        sw_await(&sw, "verify", sw_verify);
    }
    if (!refused) {
        sw_stop(&broker);
    }
    if (sw.errors > errors) {
        fprintf(stderr, "KAAS_POINT=%llx:%d\n", (unsigned long long)place, for_good);
    }
}

static void quiet(void)
{
    if (!getenv("KAAS_LOG_LEVEL")) {
        kc_log_set_level(KC_ERROR + 1);
    }
    kc_mem_spare(true);
}

static void begin(void)
{
    sw_make(&broker);
    sw = (struct sw){.broker = &broker, .producer_id = -1};
}

static void end(void)
{
    check_healthy();
    sw_remove(&broker);
    KT_EQ(sw.errors, 0);
}

/* Fails at all places known. fresh: each time on a volume where nobody was before. */
static void fail_everywhere(bool fresh)
{
    const char *only = getenv("KAAS_POINT");
    uint64_t points = 0, reached = 0, number = kt_seed();
    KT_REQUIRE(sweep.n > 0 && sweep.n < PLACES_MAX);
    uint64_t step = getenv("KAAS_SOAK") ? 1 : KC_MAX(1u, 2 * sweep.n / POINTS);
    for (uint32_t v = 0; v < 2 * sweep.n; v++) {
        char name[48];
        snprintf(name, sizeof(name), "%llx:%u", (unsigned long long)sweep.places[v / 2], v % 2);
        bool mine = only && strcmp(only, name) == 0;
        int times = mine ? 50 : !only && kc_hash64_mix(number++, 1) % step == 0 ? 1 : 0;
        for (int k = 0; k < times; k++, points++) {
            if (fresh) {
                begin();
            }
            point(sweep.places[v / 2], v % 2);
            reached += met();
            if (fresh) {
                end();
            }
        }
    }
    printf("%llu points of %u places, %llu of them reached\n", (unsigned long long)points, sweep.n,
           (unsigned long long)reached);
    KT_TRUE(only || reached > points / 2);
}

static void every_allocation_of_a_first_start_fails(void)
{
    bool refused;
    quiet();
    sweep.n = 0;
    for (int k = 0; k < RUNS; k++) {
        begin();
        start(0, false, &refused);
        KT_EQ(sw_stop(&broker), 0);
        end();
    }
    fail_everywhere(true);
}

static void every_allocation_of_a_start_fails(void)
{
    bool refused;
    quiet();
    begin();
    KT_REQUIRE(sw_start(&broker));
    sw_await(&sw, "start", sw_ready);
    sw_await(&sw, "produce", sw_produce_acks_all);
    sw_await(&sw, "commit", sw_offsets);
    KT_EQ(sw_stop(&broker), 0);
    sweep.n = 0;
    for (int k = 0; k < RUNS; k++) {
        start(0, false, &refused);
        KT_EQ(sw_stop(&broker), 0);
    }
    fail_everywhere(false);
    end();
}

int main(int argc, char **argv)
{
    static const struct kt_case cases[] = {KT(every_allocation_of_a_first_start_fails),
                                           KT(every_allocation_of_a_start_fails)};
    kc_json_setup(); /* as the program does */
    return kt_run("start", cases, KC_ARRAY_LEN(cases), argc, argv);
}
