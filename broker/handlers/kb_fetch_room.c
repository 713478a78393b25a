/* kb_fetch_room.c - which partitions of a Fetch may read how much: a byte limit, held by many loops.
 *
 * Kafka reads one partition after the other in the order of the request, and each takes from what
 * the ones before it have left; whoever rotates the order (the client, or its session, KIP-227) is
 * thereby fair to all. Here partitions are read on several loops at once, so the room is given out
 * before they are asked. In the first round each part gets all that it may take, in order, until
 * that is more than there is: what these read fits, whichever loop is quicker. As a rule it is all
 * parts, or the ones behind have nothing; else more rounds give what the others did not use, each to
 * one loop, whose parts take from it one after the other. A loop gets one such round, so there are no
 * more rounds than loops. On the home loop. */
#include "handlers/kb_fetch.h"

void kb_fetch_share_out(struct kb_fetch *f)
{
    bool none_yet = true;
    int64_t left = KC_MAX(f->room, (int64_t)0);
    f->used = 0;
    for (int32_t i = 0; i < f->fan.n; i++) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, i);
        int64_t most = KC_MAX((int64_t)p->in->partition_max_bytes, (int64_t)0);
        p->item.left_out = p->tried = p->wants = p->at_least_one = false;
        if (p->item.error) {
            continue; /* is not run */
        }
        p->at_least_one =
            none_yet && f->room >= 0; /* if it has records, it is the first to have some */
        p->grant = most <= left ? most : none_yet ? left : 0;
        left = most <= left ? left - most : 0; /* nobody overtakes one that has to wait */
        none_yet = false;
    }
}

/* KIP-74: the first part with records gets a batch, even if that is larger than its limit. */
static struct kb_fetch_part *first_with_records(struct kb_fetch *f)
{
    for (int32_t i = 0; i < f->fan.n; i++) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, i);
        if (p->bytes > 0 || (p->wants && !p->at_least_one)) {
            return p;
        }
    }
    return NULL;
}

static struct rt_loop *loop_of(struct kb_fetch *f, struct kb_fetch_part *p)
{
    return kd_loop_of(f->fan.req->app->data, &p->item.topic_id, p->item.partition);
}

/* Who begins the next round: the first one with records if it got none, else the first one that waits. */
static struct kb_fetch_part *next_up(struct kb_fetch *f)
{
    struct kb_fetch_part *first = first_with_records(f);
    if (!first || first->bytes == 0) {
        return first;
    }
    for (int32_t i = 0; f->used < f->room && i < f->fan.n; i++) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, i);
        if (p->wants && !p->tried) {
            return p;
        }
    }
    return NULL;
}

bool kb_fetch_share_rest(struct kb_fetch *f)
{
    bool stale = false;
    f->used = 0;
    for (int32_t i = 0; i < f->fan.n; i++) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, i);
        f->used += p->bytes;
        stale |= p->stale;
    }
    struct kb_fetch_part *begins = stale || f->room < 0 ? NULL : next_up(f);
    if (!begins) {
        return false;
    }
    struct rt_loop *loop = loop_of(f, begins);
    begins->at_least_one = begins == first_with_records(f);
    f->left = KC_MAX(f->room - f->used, (int64_t)0);
    for (int32_t i = 0; i < f->fan.n; i++) {
        struct kb_fetch_part *p = kb_fetch_part_at(f, i);
        p->item.left_out = !p->wants || (p->tried && p != begins) || loop_of(f, p) != loop;
        if (!p->item.left_out) {
            p->tried = true;
            p->grant = -1;
            kb_fetch_drop_read(p);
        }
    }
    return true;
}

bool kb_fetch_is_full(struct kb_fetch *f)
{
    for (int32_t i = 0; f->used > 0 && i < f->fan.n; i++) {
        if (kb_fetch_part_at(f, i)->wants) {
            return true;
        }
    }
    return false;
}
