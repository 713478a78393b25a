/* Every allocation of a broker that serves requests fails, once and for good: no crash and no leak,
 * every request is answered with an error its client can live with or its connection ends, what was
 * acked stays, and with memory back the same request works.
 *
 * KAAS_SOAK=1 runs every point; KAAS_POINT=scenario runs one of them, KAAS_POINT=scenario:n:mode one
 * point, many times over, as threads do not allocate in the same order each time. */
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "sw_parts.h"
#include "wire/kw_api_versions.h"
#include "wire/kw_describe_cluster.h"
#include "wire/kw_metadata.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

enum { POINTS_MAX = 100 }; /* of a scenario, in the reduced form */

static struct sw_broker broker;
static struct sw sw;

/* ---- scenarios of the connection and the cluster ---- */

static bool api_versions(struct sw *s)
{
    struct kw_api_versions_request q;
    kw_api_versions_request_init(&q);
    q.client_software_name = KC_STR_LIT("sweep");
    q.client_software_version = KC_STR_LIT("1");
    return sw_ask(s, 18, 3, &q) != NULL;
}

static bool metadata_all(struct sw *s)
{
    struct kw_metadata_request q;
    struct kw_describe_cluster_request c;
    kw_metadata_request_init(&q);
    kw_describe_cluster_request_init(&c);
    q.n_topics = -1;
    const struct kw_metadata_response *r = sw_ask(s, 3, 12, &q);
    return r && r->n_topics >= 2 && sw_ask(s, 60, 1, &c);
}

/* A request that comes in pieces, then one that is none. */
static bool pieces(struct sw *s)
{
    static const uint8_t head[] = {0, 0, 0, 30, 0, 18, 0, 0, 0, 0, 0, 77, 0, 20};
    static const uint8_t rest[20] = "twenty letters long.";
    if (!sw_send_raw(s, head, 6) || !sw_send_raw(s, head + 6, sizeof(head) - 6) ||
        !sw_send_raw(s, rest, 7)) {
        return false;
    }
    s->correlation = 77;
    return sw_send_raw(s, rest + 7, sizeof(rest) - 7) && sw_receive(s, 18, 0) &&
           sw_send_raw(s, "GET / HTTP/1.1\r\n\r\n", 18) && sw_await_close(s);
}

static const struct {
    const char *name;
    bool (*run)(struct sw *s);
} scenarios[] = {{"api_versions", api_versions},
                 {"pieces", pieces},
                 {"metadata_all", metadata_all},
                 {"metadata_named", sw_metadata},
                 {"produce_acks_1", sw_produce_acks_1},
                 {"produce_acks_all", sw_produce_acks_all},
                 {"produce_acks_0", sw_produce_acks_0},
                 {"produce_idempotent", sw_produce_idempotent},
                 {"fetch", sw_fetch},
                 {"fetch_long", sw_fetch_long},
                 {"list_offsets", sw_list_offsets},
                 {"epochs", sw_epochs},
                 {"topic_admin", sw_topic_admin},
                 {"describe_configs", sw_describe_configs},
                 {"delete_records", sw_delete_records},
                 {"describe_topics", sw_describe_topics},
                 {"find_coordinator", sw_find_coordinator},
                 {"membership", sw_membership},
                 {"offsets", sw_offsets},
                 {"group_admin", sw_group_admin}};

/* ---- the sweep ---- */

static void up(void)
{
    sw_make(&broker);
    KT_REQUIRE(sw_start(&broker));
    sw = (struct sw){.broker = &broker, .producer_id = -1};
    sw_await(&sw, "start", sw_ready);
    for (int i = 0; i < 3; i++) {
        sw_await(&sw, "produce", sw_produce_acks_all); /* something to fetch */
    }
}

static void down(void)
{
    sw_await(&sw, "verify", sw_verify);
    KT_EQ(sw_stop(&broker), 0);
    KT_REQUIRE(sw_start(&broker)); /* what was acked is on the volume, not in a memory */
    sw_await(&sw, "restart", sw_ready);
    sw_await(&sw, "verify after the restart", sw_verify);
    KT_EQ(sw_stop(&broker), 0);
    sw_remove(&broker);
}

/* One run with the n-th allocation failing (UINT64_MAX: none); returns how many there were. */
static uint64_t run(int i, uint64_t n, bool for_good)
{
    sw.number++;
    sw.faults = n != UINT64_MAX;
    kc_mem_fail_nth(n, for_good);
    if (sw_dial(&sw)) {
        scenarios[i].run(&sw);
    }
    uint64_t count = kc_mem_try_count();
    kc_mem_fail_nth(0, false);
    sw_hang_up(&sw);
    sw.faults = false;
    sw.number++;
    sw_await(&sw, scenarios[i].name, scenarios[i].run);
    return count;
}

static uint64_t sweep(int i, const char *only, uint64_t *number)
{
    uint64_t count = 0, points = 0;
    int before = sw.errors;
    for (int k = 0; k < 3; k++) { /* the first runs warm up what lasts */
        count = KC_MAX(count, run(i, UINT64_MAX, false));
    }
    uint64_t step = getenv("KAAS_SOAK") ? 1 : KC_MAX((uint64_t)4, 2 * count / POINTS_MAX);
    for (uint64_t v = 2; v < 2 * (count + 1); v++) {
        char name[64];
        snprintf(name, sizeof(name), "%s:%llu:%d", scenarios[i].name, (unsigned long long)v / 2,
                 (int)(v % 2));
        bool mine = only && strcmp(only, name) == 0;
        bool any = !only || !strchr(only, ':');
        int times = mine ? 200 : any && kc_hash64_mix((*number)++, 1) % step == 0 ? 1 : 0;
        for (int k = 0; k < times; k++, points++) {
            int errors = sw.errors;
            run(i, v / 2, v % 2);
            if (sw.errors > errors) {
                fprintf(stderr, "KAAS_POINT=%s\n", name);
            }
        }
    }
    printf("  %-20s %4llu allocations, %5llu points, %d findings\n", scenarios[i].name,
           (unsigned long long)count, (unsigned long long)points, sw.errors - before);
    return points;
}

static void every_allocation_of_a_request_fails(void)
{
    const char *only = getenv("KAAS_POINT");
    uint64_t points = 0, number = kt_seed();
    if (!getenv("KAAS_LOG_LEVEL")) {
        kc_log_set_level(KC_ERROR + 1);
    }
    kc_mem_spare(true);
    up();
    for (size_t i = 0; i < KC_ARRAY_LEN(scenarios); i++) {
        size_t len = strlen(scenarios[i].name);
        if (!only || (strncmp(only, scenarios[i].name, len) == 0 && strchr(":", only[len]))) {
            points += sweep((int)i, only, &number);
        }
    }
    down();
#if defined(__SANITIZE_ADDRESS__)
    KT_EQ(__lsan_do_recoverable_leak_check(), 0);
#endif
    KT_EQ(sw.errors, 0);
    KT_TRUE(points > 0);
    printf("%llu points\n", (unsigned long long)points);
}

int main(int argc, char **argv)
{
    static const struct kt_case cases[] = {KT(every_allocation_of_a_request_fails)};
    kc_json_setup(); /* as the program does */
    return kt_run("requests", cases, KC_ARRAY_LEN(cases), argc, argv);
}
