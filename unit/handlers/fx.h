/* fx.h - Fetch requests for the tests of its limits and sessions, on top of hx.h. */
#ifndef FX_H
#define FX_H

#include "hx.h"
#include "wire/kw_fetch.h"

enum { FX_MAX = 32 };

struct fx_want {
    const struct hx_topic *topic;
    int32_t partition;
    int64_t offset;
    int32_t max_bytes; /* 0 = 1 MiB */
    int32_t epoch; /* of the leader, as the client knows it; -1 = it does not */
};

struct fx_ask {
    int16_t version;
    int32_t wait_ms, min_bytes, max_bytes;
    int32_t session_id, session_epoch;
    int32_t n;
    struct fx_want want[FX_MAX];
    int32_t n_forget;
    struct fx_want forget[FX_MAX];
};
/* Version 12, no wait, 1 MiB, no session, nothing asked for. */
extern const struct fx_ask fx_plain;
void fx_add(struct fx_ask *a, const struct hx_topic *t, int32_t partition, int64_t offset);

/* Until the next call. Topics are named or given by their id, as the version has it. */
const struct kw_fetch_response *fx_fetch(struct hx_client *c, const struct fx_ask *a);
void fx_send(struct hx_client *c, const struct fx_ask *a);
const struct kw_fetch_response *fx_receive(struct hx_client *c, const struct fx_ask *a);
/* What the answer says of a partition; NULL = nothing. */
const struct kw_fetch_response_partition_data *fx_find(const struct kw_fetch_response *r,
                                                       const struct hx_topic *t, int32_t partition);
int32_t fx_count(const struct kw_fetch_response *r); /* partitions */

/* n batches of one record of `size` bytes each. */
void fx_produce(struct hx_client *c, const struct hx_topic *t, int32_t partition, int32_t n,
                size_t size);

#endif
