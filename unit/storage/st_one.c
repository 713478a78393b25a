#include "st_one.h"

struct st_vol one_vol;
struct st_broker one_b;
struct kc_uuid one_topic;

void one_begin(void)
{
    st_begin(&one_vol, &one_b, 1, NULL, &one_topic);
}

void one_end(void)
{
    st_end(&one_vol, &one_b);
}

struct ks_log *one_open(void)
{
    one_begin();
    return st_log(&one_b, &one_topic, 0);
}

void one_close(struct ks_log *log)
{
    st_close(&one_b, log);
    one_end();
}
