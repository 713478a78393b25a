/* ko_pub_check.c - a slow look at the standing documents, one at a time.
 *
 * Brokers that start later assemble the image from what stands. A document that somebody removed or
 * edited is noticed by a write only when its topics change, which may be never; so each is looked at
 * every few minutes, and written again if it is not what we left. */
#include <string.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "control/ko_pub_int.h"
#include "store/ko_object.h"

enum { CHECK_MS = 10000 };

static void mend(struct ko_pub *p, int32_t index, json_t *doc)
{
    struct ko_mend *m = kc_zalloc(sizeof(*m));
    memcpy(m->key, p->key, sizeof(m->key));
    kc_log(KC_WARN, "publisher", "event=document_%s cluster=%s document=%d",
           doc ? "changed" : "missing", p->key, (int)index);
    ko_pub_keep(p, index, doc, false);
    if (index != KO_ROOT) {
        m->shards = 1u << index;
        p->unwritten |= m->shards;
    }
    ko_to_control(p->c, ko_cc_mend, m);
}

static void on_checked(void *ctx, const struct ko_result *r)
{
    int32_t index;
    struct ko_pub *p = ko_pub_answer(ctx, &index);
    if (!p || p->batch || !atomic_load(&p->c->may_publish)) {
        return;
    }
    if (r->code == 404) {
        mend(p, index, NULL);
    } else if (r->code == 200 && strcmp(ko_rv(r->doc), ko_rv(p->docs[index])) != 0) {
        mend(p, index, r->doc); /* a newer term's root is found out by the write */
    }
}

static void on_check(uv_timer_t *t)
{
    struct ko_pub *p = t->data;
    if (p->batch || p->waiting > 0 || !atomic_load(&p->c->may_publish)) {
        return; /* writing tells as much */
    }
    int32_t index = p->check_next;
    p->check_next = (index + 1) % KO_DOCS;
    if (p->docs[index]) {
        ko_pub_get(p, index, on_checked);
    }
}

void ko_pub_check_start(struct ko_pub *p)
{
    uint64_t every = p->c->o.check_ms > 0 ? (uint64_t)p->c->o.check_ms : CHECK_MS;
    uv_timer_start(&p->check, on_check, every, every);
}
