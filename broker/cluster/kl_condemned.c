#include "cluster/kl_condemned.h"

#include <string.h>

void kl_condemned_init(struct kl_condemned *c)
{
    memset(c, 0, sizeof(*c));
    atomic_store(&c->n, -1);
}

static void halves(const struct kc_uuid *u, uint64_t ret[2])
{
    memcpy(ret, u->b, sizeof(u->b));
}

void kl_condemned_set(struct kl_condemned *c, const struct ki_image *confirmed)
{
    atomic_fetch_add(&c->seq, 1);
    for (int32_t i = 0; i < confirmed->n_rows; i++) {
        uint64_t inc[2];
        halves(&confirmed->rows[i].incarnation, inc);
        atomic_store(&c->rows[i].id, confirmed->rows[i].id);
        atomic_store(&c->rows[i].condemned, confirmed->rows[i].condemned);
        atomic_store(&c->rows[i].incarnation[0], inc[0]);
        atomic_store(&c->rows[i].incarnation[1], inc[1]);
    }
    atomic_store(&c->n, confirmed->n_rows);
    atomic_fetch_add(&c->seq, 1);
}

/* The rule is kp_condemned's, over the table instead of rows. */
static bool read_once(struct kl_condemned *c, int32_t broker, const uint64_t inc[2])
{
    int32_t n = atomic_load(&c->n);
    if (n < 0) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        if (atomic_load(&c->rows[i].id) == broker) {
            return atomic_load(&c->rows[i].condemned) ||
                   atomic_load(&c->rows[i].incarnation[0]) != inc[0] ||
                   atomic_load(&c->rows[i].incarnation[1]) != inc[1];
        }
    }
    return true; /* no row: gone */
}

bool kl_condemned_ask(void *ctx, int32_t broker, const struct kc_uuid *incarnation)
{
    struct kl_condemned *c = ctx;
    uint64_t inc[2];
    halves(incarnation, inc);
    for (;;) {
        uint32_t before = atomic_load(&c->seq);
        bool yes = read_once(c, broker, inc);
        if (!(before & 1) && atomic_load(&c->seq) == before) {
            return yes;
        }
    }
}
