#include <string.h>

#include "base/kc_mem.h"
#include "data/kd_internal.h"

enum {
    REFUSED_MAX = 8192, /* that a loop remembers */
    REFUSED_MS = 120000 /* at least so long, which is longer than requests are on their way */
};

struct refused {
    int32_t seq; /* the first that was refused */
};

struct refused_key {
    uint8_t part[KD_KEY];
    uint8_t producer[10]; /* id, epoch */
};

static struct refused_key key_of(const struct kd_sender *s)
{
    struct refused_key k;
    kd_key(k.part, s->topic_id, s->partition);
    memcpy(k.producer, &s->producer_id, sizeof(s->producer_id));
    memcpy(k.producer + sizeof(s->producer_id), &s->producer_epoch, sizeof(s->producer_epoch));
    return k;
}

/* What is forgotten is forgotten a generation at a time. */
static void turn(struct kd_loop *l, int64_t now_ms)
{
    if (l->refused[0].len >= REFUSED_MAX / 2 || now_ms - l->refused_ms >= REFUSED_MS) {
        kc_map_fini(&l->refused[1], kc_free);
        l->refused[1] = l->refused[0];
        kc_map_init(&l->refused[0]);
        l->refused_ms = now_ms;
    }
}

static struct refused *look(const struct refused_key *k)
{
    struct kd_loop *l = kd_here();
    struct refused *r = kc_map_get(&l->refused[0], k, sizeof(*k));
    return r ? r : kc_map_get(&l->refused[1], k, sizeof(*k));
}

void kd_note_refused(const struct kd_sender *s, int64_t now_ms)
{
    struct refused_key k = key_of(s);
    turn(kd_here(), now_ms);
    if (!look(&k)) {
        struct refused *r = kc_zalloc(sizeof(*r));
        r->seq = s->first_seq;
        kc_map_put(&kd_here()->refused[0], &k, sizeof(k), r);
    }
}

void kd_note_taken(const struct kd_sender *s)
{
    struct kd_loop *l = kd_here();
    for (int i = 0; i < 2; i++) {
        if (l->refused[i].len) {
            struct refused_key k = key_of(s);
            kc_free(kc_map_del(&l->refused[i], &k, sizeof(k)));
        }
    }
}

bool kd_was_refused(const struct kd_sender *s)
{
    struct refused_key k = key_of(s);
    const struct refused *r = look(&k);
    /* Sequences wrap after INT32_MAX. */
    uint32_t after = r ? ((uint32_t)s->first_seq - (uint32_t)r->seq) & INT32_MAX : 0;
    return after > 0 && after < INT32_MAX / 2;
}
