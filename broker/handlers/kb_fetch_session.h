/* kb_fetch_session.h - fetch sessions (KIP-227): which partitions a client reads, and what it knows of them.
 *
 * A client names its partitions once; then it names those whose offset moved, and hears of those
 * that have news. As kafka.server.FetchSession and FetchSessionCacheShard. Pure: no I/O, no clock.
 *
 * A cache belongs to one thread, and its sessions with it. Ids are random, and say which of the caches
 * of a broker made them: id modulo their number. All memory that requests can make it take is
 * counted, and bounded: a session that does not fit is not made, and one that outgrows the bound is
 * closed, which the client takes as any eviction. */
#ifndef KB_FETCH_SESSION_H
#define KB_FETCH_SESSION_H

#include "base/kc_list.h"
#include "base/kc_map.h"
#include "base/kc_rng.h"
#include "base/kc_uuid.h"

enum {
    KB_FS_PARTS_MAX = 65536, /* of one session: a request of so many still fits into an arena */
    KB_FS_EVICT_MS = 120000 /* Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS */
};

struct kb_fs_node { /* of a hash table */
    struct kb_fs_node *next;
    uint64_t hash;
};
struct kb_fs_table {
    struct kb_fs_node **buckets;
    size_t room, len; /* room: a power of two */
};

/* A topic of a session, by its name or by its id; shared by its partitions. */
struct kb_fs_topic {
    struct kb_fs_node node;
    struct kc_uuid id; /* zero in sessions that go by names */
    char *name; /* NULL: of an id that was never resolved */
    int32_t name_len;
    int32_t n_parts;
};

/* What the client asks for. */
struct kb_fs_asked {
    int64_t fetch_offset;
    int32_t max_bytes, leader_epoch, last_fetched_epoch;
};
/* What an answer says. */
struct kb_fs_told {
    int64_t high_watermark, last_stable, log_start; /* -1 with an error */
    bool records; /* it has some */
    bool must; /* an error or a diverging epoch: news however often it is told */
};

struct kb_fs_part {
    struct kb_fs_node node;
    struct kc_list order;
    struct kb_fs_topic *topic;
    int32_t partition;
    bool named; /* its topic's id was resolved since it is in the session */
    struct kb_fs_asked asked;
    int64_t high_watermark, last_stable, log_start; /* what the client knows; -1 = nothing */
};

struct kb_fs_cache;

struct kb_fs_session {
    struct kb_fs_cache *cache; /* NULL: not, or no longer, in it */
    int32_t id;
    int32_t epoch; /* of the next request */
    bool by_id; /* Fetch 13 and newer */
    int32_t refs;
    int64_t created_ms, used_ms;
    size_t bytes;
    struct kc_list lru;
    size_t size; /* partitions at its last use; orders the heap */
    size_t heap_at; /* place among those that may be evicted + 1; 0 = too young */
    struct kc_list order; /* of parts, as they are read; one that had records goes to the end */
    struct kb_fs_table parts, topics;
    const uint8_t *hash_key; /* the cache's */
};

struct kb_fs_stats {
    int64_t sessions, partitions;
    uint64_t evictions;
};

struct kb_fs_cache {
    int32_t slots; /* most sessions */
    size_t max_bytes, bytes;
    int32_t index, n; /* which of the broker's caches this is */
    struct kc_rng rng;
    uint8_t hash_key[16]; /* clients choose names */
    struct kc_map by_id;
    struct kc_list lru; /* oldest use first */
    struct kb_fs_session **heap; /* smallest first: those that a larger one may replace */
    size_t heap_len, heap_room;
    struct kb_fs_stats stats;
};

/* seed: of ids and hashes. */
void kb_fs_cache_init(struct kb_fs_cache *c, int32_t slots, size_t max_bytes, int32_t index,
                      int32_t n, uint64_t seed);
/* All references are gone by then. */
void kb_fs_cache_fini(struct kb_fs_cache *c);
/* Which of n caches made an id; id > 0. */
static inline int32_t kb_fs_index_of(int32_t id, int32_t n)
{
    return id % n;
}
/* FetchMetadata.nextEpoch: 1 follows on the largest; -1, the end, on itself. */
int32_t kb_fs_next_epoch(int32_t epoch);

/* ---- sessions ---- */

/* Not in the cache yet, without partitions; one reference. NULL: no memory. */
struct kb_fs_session *kb_fs_draft(struct kb_fs_cache *c, bool by_id) KC_MUST_CHECK;
/* Puts a draft into the cache, with an id and epoch 1, if there is room, or if one can be evicted for it:
 * one that was not used for KB_FS_EVICT_MS, or one older than that with fewer partitions. The cache
 * takes a reference. Returns the id; 0 = declined. */
int32_t kb_fs_admit(struct kb_fs_cache *c, struct kb_fs_session *s, int64_t now_ms);
struct kb_fs_session *kb_fs_ref(struct kb_fs_session *s);
void kb_fs_unref(struct kb_fs_session *s);
/* Takes it out of the cache; whoever holds a reference may go on with it. Absent: nothing happens. */
void kb_fs_close(struct kb_fs_cache *c, int32_t id);
/* The session that an incremental request goes on with, borrowed; or NULL with
 * FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR. */
struct kb_fs_session *kb_fs_find(struct kb_fs_cache *c, int32_t id, int32_t epoch, bool by_id,
                                 int16_t *ret_error);
/* The request was applied (kb_fs_put, kb_fs_forget): counts the epoch up and notes the use. False:
 * no partition is left, and the session was closed. */
bool kb_fs_go_on(struct kb_fs_session *s, int64_t now_ms);
/* Whether no other request went on with the session since the one of this epoch did. */
bool kb_fs_is_latest(const struct kb_fs_session *s, int32_t epoch);

/* ---- partitions ---- */

/* Adds a partition at the end of the order, or changes what is asked of it. The topic is `id` in a
 * session that goes by ids, else `name`. NULL: no memory, or more than there may be; the session is to
 * be closed. */
struct kb_fs_part *kb_fs_put(struct kb_fs_session *s, struct kc_str name, const struct kc_uuid *id,
                             int32_t partition, const struct kb_fs_asked *asked) KC_MUST_CHECK;
/* Absent: nothing happens. */
void kb_fs_forget(struct kb_fs_session *s, struct kc_str name, const struct kc_uuid *id,
                  int32_t partition);
/* Keeps the name that the id of its topic was resolved to; without memory it does not. */
void kb_fs_name(struct kb_fs_session *s, struct kb_fs_part *p, struct kc_str name);
/* In order; NULL at the end. */
struct kb_fs_part *kb_fs_first(const struct kb_fs_session *s);
struct kb_fs_part *kb_fs_next(const struct kb_fs_session *s, const struct kb_fs_part *p);
/* Notes what an answer is about to say of a partition; false: the client knows, it is left out. One with
 * records goes to the end of the order, so that a byte limit is fair to all. Between the request and
 * this call there was no other request (kb_fs_is_latest). */
bool kb_fs_tell(struct kb_fs_session *s, struct kb_fs_part *p, const struct kb_fs_told *told);
static inline int32_t kb_fs_n_parts(const struct kb_fs_session *s)
{
    return (int32_t)s->parts.len;
}

#endif
