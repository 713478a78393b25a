/* jn.h - the bed of the tests of syncs behind: a volume, two brokers, three partitions of the first, whose
 * turns go into journals, and a trap for syncs. */
#ifndef JN_H
#define JN_H

#include <stdatomic.h>

#include "st.h"

enum { JN_PARTS = 3, JN_PATH = 256 };

extern struct st_vol jn_vol;
extern struct st_broker jn_b1, jn_b2; /* the first one's operations pass the hooks */
extern struct kc_uuid jn_topic;
extern struct ks_fs jn_other; /* the volume, without hooks */
extern struct ks_log *jn_logs[JN_PARTS]; /* of jn_b1; NULL = the test has closed it */

/* What happens to syncs of files whose names have this in them. */
struct jn_trap {
    char part[64];
    _Atomic int fail; /* so many fail */
    _Atomic bool hold; /* they wait until it is over */
    _Atomic int waiting, hits;
    char first[KS_PATH_MAX]; /* the file of the first hit */
    _Atomic bool full; /* no write finds room, to whatever file */
};
extern struct jn_trap jn_trap;
void jn_set_trap(const char *part, int fail, bool hold);
bool jn_somebody_waits(void); /* in it */

/* cfg: of the partitions; NULL: the usual. Returns when a journal was made. */
void jn_begin(bool network, const struct ks_log_config *cfg);
void jn_end(void);
/* Turns jn_b1 until it is true; fails the test after 30 s. */
void jn_await(bool (*fn)(void));

extern struct ks_log *jn_resumed;
/* jn_resumed acks. Asked again until it does: it recovers meanwhile. */
bool jn_acks_again(void);

#endif
