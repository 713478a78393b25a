/* kd_internal.h - what the files of broker/data share. */
#ifndef KD_INTERNAL_H
#define KD_INTERNAL_H

#include "base/kc_map.h"
#include "data/kd_data.h"

/* Key of a partition in maps: 16 bytes of topic id, 4 of partition. */
enum { KD_KEY = 20, KD_HINTS_MAX = 4096 };

struct kd_part {
    uint8_t key[KD_KEY];
    struct kd_loop *loop;
    struct ks_log *log;
    int32_t slot_kind; /* KP_NOT_SLOTS for data partitions */
    int32_t partition;
    int32_t epoch; /* as last told to the other loops */
    bool gone; /* the log has stopped; waits for kd_release */
    struct kc_list waiters;
};

struct kd_loop {
    struct rt_loop rt;
    struct kd_data *data;
    char name[16];
    struct kd_timers timers;
    struct kc_map parts; /* key -> kd_part, owned by this loop */
    struct kc_map known; /* key -> epoch + 1 as a number: open partitions of all loops */
    struct kc_map awaited; /* key -> head of a list of kd_arrival */
    struct kc_map hints; /* key -> broker + 1: where released partitions of all loops went */
    struct kc_map refused[2]; /* kd_refused.c: of now and of the time before refused_ms */
    int64_t refused_ms;
    struct rt_msg begin;
};

struct kd_data {
    int32_t n_loops;
    bool started;
    struct kd_loop *loops;
    struct kd_slot_hooks hooks;
    void (*stopped)(void *ctx, const struct kc_uuid *topic_id, int32_t partition);
    void *stopped_ctx;
    void (*grew)(void *ctx, const struct kc_uuid *topic_id, int32_t partition, int32_t epoch);
    void *grew_ctx;
    _Atomic(const struct kc_uuid *) slot_topics[KP_TXN_SLOTS + 1];
    _Atomic int32_t n_open;
    _Atomic bool wedged;
};

void kd_key(uint8_t key[KD_KEY], const struct kc_uuid *topic_id, int32_t partition);
/* The kd_loop of the calling thread; NULL elsewhere. */
struct kd_loop *kd_here(void);

#endif
