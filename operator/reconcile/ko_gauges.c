#include "reconcile/ko_gauges.h"

#include <string.h>

enum { READ_TRIES = 16 };

static void begin(struct ko_gauges *g, int i)
{
    atomic_fetch_add(&g->slots[i].sequence, 1);
}

static void end(struct ko_gauges *g, int i)
{
    atomic_fetch_add(&g->slots[i].sequence, 1);
}

/* The slot of a cluster, or a free one if make; -1: none. */
static int slot_of(const struct ko_gauges *g, const char *cluster, bool make)
{
    int room = -1;
    for (int i = 0; i < KO_GAUGE_SLOTS; i++) {
        uint64_t name[KO_GAUGE_NAME_WORDS];
        for (int w = 0; w < KO_GAUGE_NAME_WORDS; w++) {
            name[w] = atomic_load(&g->slots[i].name[w]);
        }
        if (name[0] == 0) {
            room = room < 0 ? i : room;
        } else if (strncmp((const char *)name, cluster, sizeof(name)) == 0) {
            return i;
        }
    }
    return make ? room : -1;
}

static void set_name(struct ko_gauges *g, int i, const char *cluster)
{
    union {
        char text[KO_GAUGE_NAME_WORDS * 8];
        uint64_t words[KO_GAUGE_NAME_WORDS];
    } name = {{0}};
    size_t len = strnlen(cluster, sizeof(name.text) - 1);
    memcpy(name.text, cluster, len);
    for (int w = 0; w < KO_GAUGE_NAME_WORDS; w++) {
        atomic_store(&g->slots[i].name[w], name.words[w]);
    }
}

void ko_gauges_set(struct ko_gauges *g, const struct ko_view *v)
{
    int i = slot_of(g, v->cluster, true);
    if (i < 0) {
        return;
    }
    int64_t states[3] = {0};
    for (int32_t n = 0; n < v->n_rows; n++) {
        states[v->rows[n].state]++;
    }
    const int64_t values[KO_GAUGES] = {[KO_G_SERVING] = states[KP_SERVING],
                                       [KO_G_FENCED] = states[KP_FENCED],
                                       [KO_G_DRAINING] = states[KP_STATE_DRAINING],
                                       [KO_G_PARTITIONS] = v->partitions,
                                       [KO_G_OFFLINE] = v->offline,
                                       [KO_G_LEADERLESS] = v->leaderless,
                                       [KO_G_AWAY] = v->away,
                                       [KO_G_TERM] = (int64_t)v->order.term,
                                       [KO_G_GENERATION] = (int64_t)v->order.generation};
    begin(g, i);
    set_name(g, i, v->cluster);
    for (int n = 0; n < KO_GAUGES; n++) {
        atomic_store(&g->slots[i].values[n], values[n]);
    }
    end(g, i);
}

void ko_gauges_drop(struct ko_gauges *g, const char *cluster)
{
    int i = slot_of(g, cluster, false);
    if (i >= 0) {
        begin(g, i);
        set_name(g, i, "");
        end(g, i);
    }
}

void ko_gauges_clear(struct ko_gauges *g)
{
    for (int i = 0; i < KO_GAUGE_SLOTS; i++) {
        begin(g, i);
        set_name(g, i, "");
        end(g, i);
    }
}

bool ko_gauges_read(const struct ko_gauges *g, int slot, struct ko_gauge_sample *ret)
{
    for (int t = 0; t < READ_TRIES; t++) {
        uint32_t before = atomic_load(&g->slots[slot].sequence);
        for (int w = 0; w < KO_GAUGE_NAME_WORDS; w++) {
            uint64_t word = atomic_load(&g->slots[slot].name[w]);
            memcpy(ret->cluster + w * 8, &word, sizeof(word));
        }
        for (int n = 0; n < KO_GAUGES; n++) {
            ret->values[n] = atomic_load(&g->slots[slot].values[n]);
        }
        if (before % 2 == 0 && atomic_load(&g->slots[slot].sequence) == before) {
            return ret->cluster[0] != '\0';
        }
    }
    return false;
}
