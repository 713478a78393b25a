#include "handlers/kb_group.h"

#include <string.h>

#include "handlers/kb_kafka_config.h"

static struct rt_loop *loop_of(struct kb_req *req, struct kc_str group)
{
    struct rt_loop *loop = kg_groups_loop(req->app->groups, req->image, group);
    return loop ? loop : req->home;
}

void kb_group_run(struct kb_req *req, struct kc_str group, void (*fn)(struct kb_req *))
{
    kb_run_on(req, loop_of(req, group), fn);
}

bool kb_group_here(struct kb_req *req, struct kc_str group, void (*fn)(struct kb_req *))
{
    struct rt_loop *loop = loop_of(req, group);
    if (rt_on_loop(loop)) {
        return true;
    }
    kb_run_on(req, loop, fn);
    return false;
}

bool kb_copy_bytes(struct kb_req *req, struct kc_bytes from, struct kc_bytes *ret)
{
    uint8_t *to = kb_alloc(req, (size_t)from.len + 1, 1);
    if (!to) {
        return false;
    }
    if (from.len) {
        memcpy(to, from.ptr, (size_t)from.len);
    }
    *ret = (struct kc_bytes){to, from.len};
    return true;
}

bool kb_copy_str(struct kb_req *req, struct kc_str from, struct kc_str *ret)
{
    struct kc_bytes bytes;
    if (!from.ptr) {
        *ret = KC_STR_NULL;
        return true;
    }
    if (!kb_copy_bytes(req, (struct kc_bytes){(const uint8_t *)from.ptr, from.len}, &bytes)) {
        return false;
    }
    *ret = (struct kc_str){(const char *)bytes.ptr, bytes.len};
    return true;
}

struct kg_config kb_group_config(const struct kb_app *app)
{
    struct kg_config c = KG_CONFIG_DEFAULTS;
    c.min_session_ms = (int32_t)kb_start_i64(app, "group.min.session.timeout.ms");
    c.max_session_ms = (int32_t)kb_start_i64(app, "group.max.session.timeout.ms");
    c.initial_delay_ms = (int32_t)kb_start_i64(app, "group.initial.rebalance.delay.ms");
    c.max_size = (int32_t)kb_start_i64(app, "group.max.size");
    c.metadata_max = (int32_t)kb_start_i64(app, "offset.metadata.max.bytes");
    c.retention_ms = 60000 * kb_start_i64(app, "offsets.retention.minutes");
    c.retention_check_ms = kb_start_i64(app, "offsets.retention.check.interval.ms");
    return c;
}
