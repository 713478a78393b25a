/* kb_fetch.h - a Fetch under way, shared by the files of its handler (kb_h_fetch.c).
 *
 * Everything lives in the request's arena. The home loop owns it between two passes; during one, a
 * part belongs to its partition's loop, and parts of different loops share only the atomics. */
#ifndef KB_FETCH_H
#define KB_FETCH_H

#include "handlers/kb_fan.h"
#include "handlers/kb_fetch_session.h"
#include "wire/kw_fetch.h"

struct kb_fetch_part {
    struct kb_item item;
    const struct kw_fetch_request_partition *in; /* of the request, or made of its session */
    struct kc_str topic; /* as the answer names it; */
    struct kc_uuid topic_id; /* or by its id, from version 13 on */
    struct kb_fs_part *cached; /* of the session; it may be gone once kb_fetch_overtaken */
    int16_t unresolved; /* error of the name, before any pass */
    bool stale;
    int64_t grant; /* bytes it may read in this round; -1 = as many as are left then */
    bool at_least_one; /* … but a batch at any rate (KIP-74) */
    bool wants; /* there are records that the grant did not cover */
    bool tried; /* has had its share of what was left */
    int64_t high_watermark, last_stable, log_start;
    int32_t diverging_epoch;
    int64_t diverging_end;
    int32_t n_slices;
    struct kc_slice *slices; /* references; on the heap, as few partitions have any */
    int64_t bytes;
    int32_t n_aborted;
    struct kw_fetch_response_aborted_transaction *aborted; /* on the heap, too */
    struct kd_waiter waiter;
};

struct kb_fetch {
    struct kb_fan fan;
    struct kb_fs_session *session; /* that the request goes on with; a reference */
    bool wants_session;
    struct kw_fetch_response resp; /* its arrays are made before the first pass */
    struct kw_fetch_response_partition_data *out; /* of its topics */
    int64_t max_bytes, min_bytes;
    int64_t room; /* of max_bytes, what the budget gave this pass; -1 = nothing now */
    int64_t used; /* bytes that the rounds of this pass have read */
    int64_t left; /* of the room, in a round whose parts take what is left; that of their loop */
    int64_t deadline_ms, last_pass_ms;
    bool parked; /* all waiters are in place; only then another pass may begin */
    bool again; /* something moved meanwhile */
    bool leaving; /* the answer waits for wake_msg to come home */
    struct kd_timer timer;
    _Atomic bool woken; /* wake_msg is on its way */
    struct rt_msg wake_msg;
};

/* Runs of the fan (kb_fan.h), on the partition's loop: a read within what is left of the budget; and
 * a waiter on the partition, which wakes the request when something moves. */
void kb_fetch_read_part(struct kb_item *item);
void kb_fetch_park_part(struct kb_item *item);
/* Lets go of what was read. On the home loop, between two rounds. */
void kb_fetch_drop_read(struct kb_fetch_part *p);
/* A waiter saw something move; on the home loop. */
void kb_fetch_on_wake(struct rt_msg *msg);

static inline struct kb_fetch_part *kb_fetch_part_at(struct kb_fetch *f, int32_t i)
{
    return KC_CONTAINER_OF(kb_fan_item(&f->fan, i), struct kb_fetch_part, item);
}

/* What it is about (kb_fetch_ask.c). First the session: an error of Kafka, for the answer as a whole, or
 * 0. Then its parts, in the order in which they are read; false when the request was dropped. */
int16_t kb_fetch_begin(struct kb_fetch *f);
bool kb_fetch_list(struct kb_fetch *f);
/* Whether another request went on with the session meanwhile: this one has lost its place in it. */
bool kb_fetch_overtaken(const struct kb_fetch *f);
/* Whether the answer has to say this of a part; its session takes note that it does. */
bool kb_fetch_is_news(struct kb_fetch *f, struct kb_fetch_part *p,
                      const struct kw_fetch_response_partition_data *out);
/* The session that the answer names, made now if one was asked for, with what `out` says of each part;
 * 0 = none. */
int32_t kb_fetch_session_id(struct kb_fetch *f, const struct kw_fetch_response_partition_data *out);
/* Lets go of the session. */
void kb_fetch_end(struct kb_fetch *f);

/* Who may read how much (kb_fetch_room.c), on the home loop. Before the first round of a pass, in
 * which all parts are run: */
void kb_fetch_share_out(struct kb_fetch *f);
/* After each round: counts what it read. True: another round is to be run, by the parts that are not
 * left out. */
bool kb_fetch_share_rest(struct kb_fetch *f);
/* Whether there are records for which there was no room. */
bool kb_fetch_is_full(struct kb_fetch *f);

#endif
