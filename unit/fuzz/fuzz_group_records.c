/* What a slot reads from its log: batches of group and offset records, restored into a group that
 * then lives a little. Nothing in a log may bring the coordinator down. */
#include "base/kc_mem.h"
#include "groups/kg_step.h"
#include "groups/kg_store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct kg_config config = KG_CONFIG_DEFAULTS;

static bool on_offset(void *ctx, struct kc_str group, struct kc_str topic, int32_t partition,
                      const struct kg_offset_value *value)
{
    struct kg_offsets *o = ctx;
    (void)group;
    if (!value) {
        kg_offset_clear(o, topic, partition);
        return true;
    }
    bool ok = kg_offset_set(o, topic, partition, value);
    KC_ASSERT(!ok || kg_offset_find(o, topic, partition)->v.offset == value->offset);
    return ok;
}

/* A member joins and time passes: whatever was restored, nobody stays parked at the end. */
static void live(struct kg_group *g)
{
    struct kg_step s;
    int parked;
    struct kg_protocol p = {g->protocol_name.ptr ? g->protocol_name : KC_STR_LIT("range"),
                            {NULL, 0}};
    struct kg_join_in in = {.req = &parked,
                            .spec = {.id = KC_STR_LIT(""),
                                     .session_timeout_ms = 10000,
                                     .rebalance_timeout_ms = 10000,
                                     .n_protocols = 1,
                                     .protocols = &p},
                            .new_id = KC_STR_LIT("fuzz"),
                            .protocol_type =
                                g->protocol_type.ptr ? g->protocol_type : KC_STR_LIT("consumer")};
    kg_step_init(&s, &config);
    kg_group_resume(g, &s);
    (void)kg_group_subscribed(g, KC_STR_LIT("t"));
    kg_join(g, &s, &in);
    for (int i = 0; i < 8; i++) {
        s.now_ms += 7000;
        kg_tick(g, &s);
    }
    kg_group_abandon(g, &s, KAFKA_NOT_COORDINATOR);
    kg_step_fini(&s);
}

static bool on_group(void *ctx, struct kc_str group, const struct kw_group_metadata_value *value)
{
    (void)ctx;
    struct kg_group g;
    kg_group_init(&g, group, 0);
    bool ok = !value || kg_group_restore(&g, value);
    if (ok) {
        struct kg_batch b;
        struct kc_buf *buf;
        kg_batch_init(&b, 0);
        kg_batch_group(&b, &g, false);
        if (kg_batch_take(&b, &buf) == 0) {
            kc_buf_unref(buf);
        }
        kg_batch_fini(&b);
        live(&g);
    }
    kg_group_fini(&g);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kg_offsets offsets;
    struct kg_read_stats stats = {0};
    kg_offsets_init(&offsets);
    struct kg_reader r = {&offsets, on_offset, on_group};
    (void)kg_records_read(data, size, &r, &stats);
    kg_offsets_fini(&offsets);
    return 0;
}
