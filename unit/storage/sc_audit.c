/* The end of a scenario: is all of it there? */
#include <stdlib.h>

#include "base/kc_log.h"
#include "sc.h"

/* Batches of the log as it is, by one walk. */
struct found {
    struct sc_ack v[SC_ACKS];
    int n;
};
static struct found found;

static void on_found(struct sc *s, int32_t part, const struct ks_batch *b)
{
    (void)part;
    if (found.n == SC_ACKS) {
        sc_bad(s, "more batches than were sent");
        return;
    }
    if (b->count > 0) { /* else what a cleaning left of it */
        found.v[found.n++] = sc_told_of(b);
    }
}

static const struct sc_ack *at_offset(int64_t base)
{
    for (int i = 0; i < found.n; i++) {
        if (found.v[i].base == base) {
            return &found.v[i];
        }
    }
    return NULL;
}

/* A newer record of the key is there, so that a cleaning may have taken this one away. */
static bool superseded(const struct sc_ack *a)
{
    bool yes = false;
    for (int i = 0; i < found.n; i++) {
        yes = yes || (a->key && found.v[i].key == a->key && found.v[i].base > a->base);
    }
    return yes;
}

static void compare(struct sc *s, int32_t part, int64_t start)
{
    for (int i = 0; i < s->n_acks; i++) {
        const struct sc_ack *a = &s->acks[i];
        if (a->part != part || a->base + a->count <= start) {
            continue;
        }
        const struct sc_ack *f = at_offset(a->base);
        if ((!f || f->crc != a->crc) && !superseded(a)) {
            sc_bad(s, "I1: partition %d: what was acked at offset %lld is %s", part,
                   (long long)a->base, f ? "another batch" : "lost");
        }
    }
    for (int i = 0; i < found.n; i++) {
        for (int j = 0; j < i; j++) {
            if (found.v[i].crc == found.v[j].crc) {
                sc_bad(s, "partition %d: the batch at %lld is at %lld, too", part,
                       (long long)found.v[j].base, (long long)found.v[i].base);
            }
        }
    }
}

void sc_audit_log(struct sc *s, struct ks_log *log)
{
    int32_t part = ks_log_partition(log);
    struct sc_producer *p = &s->producers[part];
    struct ks_offsets o = ks_log_offsets(log);
    if (o.start > s->trimmed[part]) {
        sc_bad(s, "partition %d starts at %lld", part, (long long)o.start);
    }
    found.n = 0;
    sc_walk(s, log, on_found);
    compare(s, part, o.start);
    sc_put_idem(s, log); /* what was sent and not acked, again */
    if (p->seq > 1) { /* the last acked one, again: a repeat */
        p->seq--;
        sc_put_idem(s, log);
    }
    sc_put(s, log, 1);
    found.n = 0;
    sc_walk(s, log, on_found);
    compare(s, part, o.start);
}

void sc_fsck(struct sc *s)
{
    struct ks_fsck_result r;
    struct ks_fs fs;
    char *text;
    sc_fs(s, 99, &fs);
    int rc = st_fsck(&s->vol, &fs, &r, &text);
    ks_fs_fini(&fs);
    s->n_ports--; /* its place */
    if (rc || r.strange) {
        sc_bad(s, "fsck: %s\n%s", kc_strerror(rc), text);
    }
    free(text);
}

void sc_audit(struct sc *s, int number)
{
    const int at = SC_BROKERS - 1;
    KT_REQUIRE(!s->up[at] && !s->faults);
    sc_config(s, s->cfg.segment_bytes, -1); /* nothing goes meanwhile */
    if (!sc_up_as(s, at, number)) {
        return;
    }
    for (int32_t part = 0; part < SC_PARTS; part++) {
        struct ks_log *log = sc_open(s, at, part);
        if (log) {
            sc_audit_log(s, log);
            sc_close(s, log);
        }
    }
    sc_down(s, at);
    sc_fsck(s);
}

void sc_finish(struct sc *s, const struct sc_scenario *sc)
{
    s->faults = false;
    atomic_store(&s->poison, false);
    s->dying = s->dead = 0;
    for (int i = 0; i < SC_LOGS; i++) {
        sc_resume(s, s->logs[i].log);
    }
    sc_end(s);
    if (sc->check && sc_up(s, 0)) {
        sc->check(s, 0);
        sc_down(s, 0);
    }
    sc_audit(s, 7);
    sc_free(s);
}
