/* st_ckpt.h - one log that writes a checkpoint every few KiB, for the tests of checkpoints. */
#ifndef ST_CKPT_H
#define ST_CKPT_H

#include "st.h"

enum { CP_BYTES = 4096, CP_VALUE = 300 };

extern struct st_vol cp_vol;
extern struct st_broker cp_b;
extern struct kc_uuid cp_topic;

/* Operations of this kind on names that have `part` in them fail. */
struct cp_trap {
    enum st_op op;
    const char *_Atomic part; /* NULL: none */
    int rc;
    _Atomic int hits;
};
extern struct cp_trap cp_trap;

void cp_begin(void);
void cp_end(void);
void cp_start_broker(void);
struct ks_log *cp_open(int64_t segment_bytes);
/* The broker dies without a seal, and another incarnation takes the partition. */
struct ks_log *cp_reopen(struct ks_log *log, int64_t segment_bytes);
/* Waits for the checkpoint under way. */
void cp_settle(struct ks_log *log);
void cp_put(struct ks_log *log, int n); /* n batches of two records each */
/* Calls fn for each file of the partition whose name ends so; returns how many there are. */
int cp_each(const char *suffix, void (*fn)(const char *path));
void cp_gone(const char *path); /* removes it */

#endif
