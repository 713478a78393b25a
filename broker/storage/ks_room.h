/* ks_room.h - what a broker does while the volume takes no bytes: full, over quota, or read-only
 * (ADR 17).
 *
 * Pure: errors, counts and time in, decisions out; ks_reserve.h does the I/O.
 *
 * The first error that says so ends appends at once, on the owner's loop and without another try, so
 * that what room there is goes to what must be written: seals of planned moves, claims, TRIM records
 * that free room. For those a reserve lies on the volume, given up piece by piece. Appends resume when
 * the reserve is whole again: that is the proof that there is room. */
#ifndef KS_ROOM_H
#define KS_ROOM_H

#include "storage/ks_engine.h"

enum {
    KS_RESERVE_PIECE = 256 * 1024, /* bytes; given up and written as a whole */
    KS_RESERVE_PIECES = 256, /* at most */
    KS_RESERVE_LEAST = 8,
    KS_RESERVE_LOG =
        16 * 1024, /* for each open log: a seal, a claim, a TRIM, and their directory */
    KS_ROOM_MARGIN = 1024 * 1024, /* that must be free beside the reserve before appends resume */
    KS_ROOM_WAIT_MS = 1000, /* between trials; doubled while they fail, up to: */
    KS_ROOM_WAIT_MAX_MS = 8000,
    KS_ROOM_RETRY_MS = 5000 /* between recoveries of logs when nothing is left to give up */
};

struct ks_room {
    enum ks_volume state;
    uint64_t errors; /* that said so, counted */
    int64_t since_ms; /* monotonic, as all here: when the state began */
    int64_t wait_ms, next_ms; /* of trials */
    int64_t retry_ms; /* of recoveries */
};

void ks_room_init(struct ks_room *r, int64_t now);
/* What an error says about the volume: KS_VOLUME_OK if it is about something else. */
enum ks_volume ks_room_of(int rc);
/* Pieces of the reserve that should lie on the volume. bytes: -1 = as many as n_logs need. */
uint32_t ks_room_want(int64_t bytes, int64_t n_logs);
/* An operation failed with rc. True: the state changed. */
bool ks_room_error(struct ks_room *r, int rc, int64_t now);
/* Time to write what is missing, or to try whether the volume takes bytes again? */
bool ks_room_due(const struct ks_room *r, uint32_t have, uint32_t want, int64_t now);
/* Is a trial worth it? It takes room from others' seals. free: what the volume says is free, the
 * largest number if it does not tell. False: put off. */
bool ks_room_worth(struct ks_room *r, uint32_t missing, uint64_t free, int64_t now);
/* A trial ended with rc, which began when there had been `errors`. True: the state changed. */
bool ks_room_tried(struct ks_room *r, int rc, uint64_t errors, int64_t now);
/* May logs that an error stopped be recovered now? */
bool ks_room_may_retry(struct ks_room *r, uint32_t have, int64_t now);

#endif
