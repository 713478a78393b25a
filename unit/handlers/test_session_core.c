/* Fetch sessions without a broker, on a clock of the test's own. */
#include "kt.h"

#include <stdlib.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "handlers/kb_fetch_session.h"
#include "wire/kw_errors.h"

enum { SLOTS = 4, MANY = 1 << 20 };

static struct kb_fs_cache c;
static const struct kc_uuid none;
static const struct kb_fs_asked asked = {.max_bytes = 1000, .leader_epoch = -1};

static void up(int32_t slots, size_t bytes)
{
    kb_fs_cache_init(&c, slots, bytes, 1, 3, 42);
}

static struct kb_fs_part *put(struct kb_fs_session *s, const char *topic, int32_t partition)
{
    return kb_fs_put(s, kc_str_of(topic), &none, partition, &asked);
}

/* A session of n partitions of topic t; 0 = declined. */
static int32_t make(int32_t n, int64_t now_ms)
{
    struct kb_fs_session *s = kb_fs_draft(&c, false);
    KT_REQUIRE(s != NULL);
    for (int32_t i = 0; i < n; i++) {
        KT_REQUIRE(put(s, "t", i) != NULL);
    }
    int32_t id = kb_fs_admit(&c, s, now_ms);
    kb_fs_unref(s);
    return id;
}

static struct kb_fs_session *find(int32_t id, int32_t epoch)
{
    int16_t error;
    return kb_fs_find(&c, id, epoch, false, &error);
}

static bool use(int32_t id, int32_t epoch, int64_t now_ms)
{
    struct kb_fs_session *s = find(id, epoch);
    return s && kb_fs_go_on(s, now_ms);
}

static void epochs_count_up_and_begin_again_at_one(void)
{
    KT_EQ(kb_fs_next_epoch(0), 1);
    KT_EQ(kb_fs_next_epoch(1), 2);
    KT_EQ(kb_fs_next_epoch(INT32_MAX), 1);
    KT_EQ(kb_fs_next_epoch(-1), -1);
    up(SLOTS, MANY);
    int32_t id = make(1, 0);
    struct kb_fs_session *s = find(id, 1);
    KT_REQUIRE(s != NULL);
    s->epoch = INT32_MAX;
    KT_TRUE(use(id, INT32_MAX, 0));
    KT_TRUE(kb_fs_is_latest(s, INT32_MAX));
    KT_TRUE(use(id, 1, 0));
    KT_FALSE(kb_fs_is_latest(s, INT32_MAX)); /* another request came in between */
    kb_fs_cache_fini(&c);
}

static void what_does_not_fit_the_session_is_refused(void)
{
    up(SLOTS, MANY);
    int32_t id = make(1, 0);
    int16_t error;
    KT_TRUE(id > 0);
    KT_EQ(kb_fs_index_of(id, 3), 1);
    KT_TRUE(kb_fs_find(&c, id + 3, 1, false, &error) == NULL);
    KT_EQ(error, KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    KT_TRUE(kb_fs_find(&c, id, 2, false, &error) == NULL);
    KT_EQ(error, KAFKA_INVALID_FETCH_SESSION_EPOCH);
    KT_TRUE(kb_fs_find(&c, id, 1, true, &error) == NULL);
    KT_EQ(error, KAFKA_FETCH_SESSION_TOPIC_ID_ERROR);
    KT_TRUE(kb_fs_find(&c, id, 1, false, &error) != NULL);
    KT_EQ(error, 0);
    kb_fs_close(&c, id);
    kb_fs_close(&c, id);
    KT_TRUE(kb_fs_find(&c, id, 1, false, &error) == NULL);
    KT_EQ(c.stats.sessions, 0);
    KT_EQ(c.stats.partitions, 0);
    KT_EQ(c.bytes, 0);
    kb_fs_cache_fini(&c);
}

static void a_session_without_partitions_ends(void)
{
    up(SLOTS, MANY);
    int32_t id = make(2, 0);
    struct kb_fs_session *s = find(id, 1);
    KT_REQUIRE(s != NULL);
    kb_fs_forget(s, KC_STR_LIT("t"), &none, 0);
    kb_fs_forget(s, KC_STR_LIT("t"), &none, 7);
    kb_fs_forget(s, KC_STR_LIT("u"), &none, 1);
    KT_EQ(kb_fs_n_parts(s), 1);
    KT_EQ(c.stats.partitions, 1);
    KT_TRUE(kb_fs_go_on(s, 0));
    kb_fs_forget(s, KC_STR_LIT("t"), &none, 1);
    kb_fs_forget(s, KC_STR_LIT("t"), &none, 1);
    KT_FALSE(kb_fs_go_on(s, 0));
    KT_EQ(c.stats.sessions, 0);
    KT_EQ(c.bytes, 0);
    kb_fs_cache_fini(&c);
}

static void a_session_that_is_not_used_makes_room_for_any(void)
{
    up(SLOTS, MANY);
    int32_t ids[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        ids[i] = make(5, i);
    }
    KT_EQ(make(1, 2 + KB_FS_EVICT_MS - 2), 0); /* the oldest was used 120 s ago: not longer */
    KT_TRUE(use(ids[0], 1, 10));
    int64_t now = 2 + KB_FS_EVICT_MS;
    KT_TRUE(make(1, now) != 0);
    KT_TRUE(find(ids[1], 1) == NULL); /* the one that was used least lately */
    KT_TRUE(find(ids[0], 2) != NULL);
    KT_EQ(c.stats.evictions, 1);
    KT_EQ(c.stats.sessions, SLOTS);
    KT_EQ(c.stats.partitions, 16);
    KT_EQ(make(1, now), 0); /* and one is enough */
    kb_fs_cache_fini(&c);
}

static void a_larger_session_replaces_the_smallest_that_is_old_enough(void)
{
    up(SLOTS, MANY);
    static const int32_t sizes[SLOTS] = {7, 3, 5, 9};
    int32_t ids[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        ids[i] = make(sizes[i], 0);
    }
    KT_EQ(make(100, 1), 0); /* all are young */
    int64_t now = KB_FS_EVICT_MS + 1;
    for (int i = 0; i < SLOTS; i++) {
        KT_TRUE(use(ids[i], 1, now));
    }
    KT_EQ(make(3, now), 0); /* not larger */
    int32_t id = make(4, now);
    KT_TRUE(id != 0);
    KT_TRUE(find(ids[1], 2) == NULL);
    KT_EQ(make(5, now), 0); /* the newest is the smallest, and young */
    KT_TRUE(make(6, now) != 0);
    KT_TRUE(find(ids[2], 2) == NULL);
    KT_TRUE(find(id, 1) != NULL && find(ids[0], 2) != NULL && find(ids[3], 2) != NULL);
    kb_fs_cache_fini(&c);
}

static void one_that_was_evicted_is_there_for_whoever_still_answers_with_it(void)
{
    up(1, MANY);
    int32_t id = make(2, 0);
    struct kb_fs_session *s = kb_fs_ref(find(id, 1));
    KT_TRUE(make(1, KB_FS_EVICT_MS + 1) != 0);
    KT_TRUE(find(id, 1) == NULL);
    struct kb_fs_told told = {.high_watermark = 5};
    KT_TRUE(kb_fs_tell(s, kb_fs_first(s), &told));
    KT_EQ(kb_fs_n_parts(s), 2);
    kb_fs_unref(s);
    KT_EQ(c.stats.partitions, 1);
    kb_fs_cache_fini(&c);
}

static void memory_is_bounded(void)
{
    enum { BYTES = 20000 };
    static char name[4000];
    memset(name, 'n', sizeof(name) - 1);
    up(1000, BYTES);
    int64_t made = 0;
    while (make(10, 0)) {
        made++;
    }
    KT_TRUE(made > 3 && c.bytes <= BYTES);
    KT_EQ(c.stats.sessions, made);
    KT_EQ(make(1000, KB_FS_EVICT_MS + 1), 0); /* would fit nowhere, and throws nobody out */
    KT_EQ(c.stats.evictions, 0);
    kb_fs_cache_fini(&c);
    up(1000, BYTES);
    struct kb_fs_session *s = find(make(10, 0), 1);
    KT_REQUIRE(s != NULL);
    int32_t id = s->id, n = 0; /* names count */
    while (kb_fs_put(s, (struct kc_str){name, (int32_t)sizeof(name) - 1 - n}, &none, 0, &asked)) {
        n++;
    }
    KT_TRUE(n >= 2 && n <= 5);
    kb_fs_close(&c, id);
    KT_EQ(c.bytes, 0);
    KT_EQ(c.stats.partitions, 0);
    kb_fs_cache_fini(&c);
    up(1000, (size_t)1 << 30);
    KT_TRUE(make(KB_FS_PARTS_MAX, 0) != 0);
    s = kb_fs_draft(&c, false);
    for (int32_t i = 0; i < KB_FS_PARTS_MAX; i++) {
        KT_REQUIRE(put(s, "t", i) != NULL);
    }
    KT_TRUE(put(s, "t", KB_FS_PARTS_MAX) == NULL);
    KT_TRUE(put(s, "t", 5) != NULL); /* is there */
    kb_fs_unref(s);
    kb_fs_cache_fini(&c);
}

static void without_memory_nothing_is_half_done(void)
{
    up(SLOTS, MANY);
    for (uint64_t nth = 1; nth < 30; nth++) {
        kc_mem_fail_nth(nth, true);
        struct kb_fs_session *s = kb_fs_draft(&c, nth % 2);
        struct kc_uuid id = {{3}};
        for (int32_t i = 0; s && i < 4; i++) {
            struct kb_fs_part *p = kb_fs_put(s, kc_str_of("t"), &id, i, &asked);
            if (p) {
                kb_fs_name(s, p, KC_STR_LIT("name"));
            }
        }
        if (s && kb_fs_n_parts(s) > 0) {
            KT_TRUE(kb_fs_admit(&c, s, 0) != 0);
            kb_fs_close(&c, s->id);
        }
        kb_fs_unref(s);
        kc_mem_fail_nth(0, false);
        KT_EQ(c.bytes, 0);
        KT_EQ(c.stats.partitions, 0);
    }
    kb_fs_cache_fini(&c);
}

static void only_news_is_told(void)
{
    up(SLOTS, MANY);
    struct kb_fs_session *s = find(make(2, 0), 1);
    struct kb_fs_part *p = kb_fs_first(s);
    struct kb_fs_told told = {.high_watermark = 5, .last_stable = 5, .log_start = 0};
    KT_TRUE(kb_fs_tell(s, p, &told));
    KT_FALSE(kb_fs_tell(s, p, &told));
    told.high_watermark = 6;
    KT_TRUE(kb_fs_tell(s, p, &told));
    told.last_stable = 6;
    KT_TRUE(kb_fs_tell(s, p, &told));
    told.log_start = 1;
    KT_TRUE(kb_fs_tell(s, p, &told));
    KT_FALSE(kb_fs_tell(s, p, &told));
    struct kb_fs_told failed = {
        .high_watermark = -1, .last_stable = -1, .log_start = -1, .must = true};
    KT_TRUE(kb_fs_tell(s, p, &failed));
    KT_TRUE(kb_fs_tell(s, p, &failed)); /* as long as it fails */
    KT_TRUE(kb_fs_tell(s, p, &told)); /* and that it does no more */
    KT_FALSE(kb_fs_tell(s, p, &told));
    told.must = true; /* diverging: the same offsets */
    KT_TRUE(kb_fs_tell(s, p, &told));
    told.must = false;
    KT_TRUE(kb_fs_tell(s, p, &told));
    KT_TRUE(kb_fs_first(s) == p);
    told.records = true;
    KT_TRUE(kb_fs_tell(s, p, &told));
    KT_TRUE(kb_fs_first(s) != p); /* it had its turn */
    KT_TRUE(kb_fs_next(s, kb_fs_first(s)) == p);
    kb_fs_cache_fini(&c);
}

/* ---- a client's view, against all there is ---- */

enum { TOPICS = 5, PARTS = 7, TURNS = 20000 };

struct thing { /* a partition as it is, or as the client thinks it is */
    bool asked; /* in the session */
    bool seen;
    struct kb_fs_told is;
    int32_t fetched; /* the model's fetch offset */
};
static struct thing truth[TOPICS][PARTS], view[TOPICS][PARTS];
static const char *const names[TOPICS] = {"a", "b", "c", "d", "e"};
static bool by_id;

static struct kc_uuid id_of(int t)
{
    return (struct kc_uuid){{(uint8_t)(t + 1)}};
}

static int topic_of(const struct kb_fs_part *p)
{
    return by_id ? p->topic->id.b[0] - 1 : p->topic->name[0] - 'a';
}

static void change(struct kc_rng *r)
{
    struct thing *t = &truth[kc_rng_below(r, TOPICS)][kc_rng_below(r, PARTS)];
    bool fails = kc_rng_below(r, 8) == 0;
    if (fails) {
        t->is = (struct kb_fs_told){-1, -1, -1, false, true};
    } else if (t->is.must) {
        t->is = (struct kb_fs_told){(int64_t)kc_rng_below(r, 3), 0, 0, false, false};
    } else {
        t->is.high_watermark += (int64_t)kc_rng_below(r, 3);
        t->is.last_stable = t->is.high_watermark - (int64_t)kc_rng_below(r, 2);
        t->is.log_start += kc_rng_below(r, 4) == 0;
        t->is.records = kc_rng_below(r, 3) == 0;
    }
}

/* Asks for some anew, forgets some; and what an offset is. */
static void ask(struct kc_rng *r, struct kb_fs_session *s)
{
    for (uint64_t i = kc_rng_below(r, 4); i > 0; i--) {
        int t = (int)kc_rng_below(r, TOPICS), p = (int)kc_rng_below(r, PARTS);
        struct kc_uuid id = id_of(t);
        if (kc_rng_below(r, 3) == 0) {
            kb_fs_forget(s, kc_str_of(names[t]), &id, p);
            view[t][p] = (struct thing){.asked = false};
            continue;
        }
        struct kb_fs_asked a = {.fetch_offset = (int64_t)kc_rng_below(r, 1000)};
        KT_REQUIRE(kb_fs_put(s, kc_str_of(names[t]), &id, p, &a) != NULL);
        view[t][p].asked = true;
        view[t][p].fetched = (int32_t)a.fetch_offset;
    }
}

static int32_t answer(struct kb_fs_session *s)
{
    int32_t n = 0, of = kb_fs_n_parts(s);
    for (struct kb_fs_part *p = kb_fs_first(s), *next; n < of; p = next, n++) {
        next = kb_fs_next(s, p); /* it may go to the end */
        int t = topic_of(p);
        struct thing *v = &view[t][p->partition];
        KT_TRUE(v->asked);
        KT_EQ(v->fetched, p->asked.fetch_offset);
        struct kb_fs_told told = truth[t][p->partition].is;
        bool must = told.must || told.records || !v->seen;
        bool news = kb_fs_tell(s, p, &told);
        KT_TRUE(news || !must);
        if (news) {
            v->is = told;
            v->seen = true;
        }
        if (!next) {
            n++;
            break;
        }
    }
    return n;
}

static void same_view(void)
{
    for (int t = 0; t < TOPICS; t++) {
        for (int p = 0; p < PARTS; p++) {
            const struct thing *v = &view[t][p], *w = &truth[t][p];
            if (v->asked) {
                KT_TRUE(v->seen);
                KT_EQ(v->is.high_watermark, w->is.high_watermark);
                KT_EQ(v->is.last_stable, w->is.last_stable);
                KT_EQ(v->is.log_start, w->is.log_start);
                KT_EQ(v->is.must, w->is.must);
            }
        }
    }
}

/* Of a session that changes all the time the client knows as much as from full answers. */
static void what_is_told_adds_up_to_all_there_is(void)
{
    struct kc_rng r;
    kc_rng_seed(&r, kt_seed());
    for (int kind = 0; kind < 2; kind++) {
        by_id = kind;
        up(SLOTS, MANY);
        memset(view, 0, sizeof(view));
        struct kb_fs_session *s = NULL;
        int64_t told = 0;
        for (int turn = 0; turn < TURNS; turn++) {
            change(&r);
            if (!s) {
                s = kb_fs_draft(&c, by_id);
                memset(view, 0, sizeof(view));
            }
            ask(&r, s);
            if (!s->cache && kb_fs_n_parts(s) > 0) {
                KT_TRUE(kb_fs_admit(&c, s, turn) != 0);
                kb_fs_unref(s);
            } else if (s->cache && !kb_fs_go_on(s, turn)) {
                s = NULL;
                continue;
            }
            told += answer(s);
            same_view();
        }
        KT_TRUE(told > 0);
        if (s && !s->cache) {
            kb_fs_unref(s);
        }
        kb_fs_cache_fini(&c);
        KT_EQ(c.bytes, 0);
    }
}

/* All have records always, and an answer has room for three: each gets its turn. */
static void a_limit_is_fair_to_all(void)
{
    enum { N = 20, ROOM = 3, ROUNDS = 200 };
    int32_t had[N] = {0};
    up(SLOTS, MANY);
    struct kb_fs_session *s = find(make(N, 0), 1);
    for (int round = 0; round < ROUNDS; round++) {
        struct kb_fs_part *in_order[N], *p = kb_fs_first(s);
        for (int i = 0; i < N; i++, p = kb_fs_next(s, p)) {
            in_order[i] = p;
        }
        for (int i = 0; i < N; i++) {
            struct kb_fs_told told = {.records = i < ROOM};
            had[in_order[i]->partition] += i < ROOM;
            kb_fs_tell(s, in_order[i], &told);
        }
    }
    for (int i = 0; i < N; i++) {
        KT_EQ(had[i], ROUNDS * ROOM / N);
    }
    kb_fs_cache_fini(&c);
}

KT_MAIN("session_core", KT(epochs_count_up_and_begin_again_at_one),
        KT(what_does_not_fit_the_session_is_refused), KT(a_session_without_partitions_ends),
        KT(a_session_that_is_not_used_makes_room_for_any),
        KT(a_larger_session_replaces_the_smallest_that_is_old_enough),
        KT(one_that_was_evicted_is_there_for_whoever_still_answers_with_it), KT(memory_is_bounded),
        KT(without_memory_nothing_is_half_done), KT(only_news_is_told),
        KT(what_is_told_adds_up_to_all_there_is), KT(a_limit_is_fair_to_all))
