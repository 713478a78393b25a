#include "storage/ks_sound.h"

#include <string.h>

static void drop(struct ks_sound *s, uint32_t i)
{
    s->n--;
    memmove(&s->v[i], &s->v[i + 1], (s->n - i) * sizeof(s->v[0]));
}

static uint32_t smallest(const struct ks_sound *s)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < s->n; i++) {
        if (s->v[i].to - s->v[i].from < s->v[best].to - s->v[best].from) {
            best = i;
        }
    }
    return best;
}

void ks_sound_add(struct ks_sound *s, uint64_t from, uint64_t to)
{
    uint32_t i = 0;
    if (from >= to) {
        return;
    }
    while (i < s->n && s->v[i].to < from) {
        i++;
    }
    while (i < s->n && s->v[i].from <= to) { /* they meet */
        from = KC_MIN(from, s->v[i].from);
        to = KC_MAX(to, s->v[i].to);
        drop(s, i);
    }
    if (s->n == KS_SOUND_SPANS) {
        uint32_t least = smallest(s);
        if (s->v[least].to - s->v[least].from > to - from) {
            return; /* the new one is the smallest */
        }
        drop(s, least);
        i -= least < i;
    }
    memmove(&s->v[i + 1], &s->v[i], (s->n - i) * sizeof(s->v[0]));
    s->v[i].from = from;
    s->v[i].to = to;
    s->n++;
}

uint64_t ks_sound_to(const struct ks_sound *s, uint64_t from)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->v[i].from <= from && from < s->v[i].to) {
            return s->v[i].to;
        }
    }
    return from;
}
