/* st_one.h - what most tests of the log start from: one volume, broker 1 on it, one topic. */
#ifndef ST_ONE_H
#define ST_ONE_H

#include "st.h"

extern struct st_vol one_vol;
extern struct st_broker one_b;
extern struct kc_uuid one_topic;

void one_begin(void);
void one_end(void); /* logs are closed before */
/* The same with partition 0 open. */
struct ks_log *one_open(void);
void one_close(struct ks_log *log);

#endif
