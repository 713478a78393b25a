/* kw_api.h - the table of Kafka APIs, request and response headers.
 *
 * The table is generated from proto/kafka; it says what the codec can read and write, not what the
 * broker serves or advertises. */
#ifndef KW_API_H
#define KW_API_H

#include "wire/kw_schema.h"

struct kw_api {
    int16_t key;
    const char *name; /* Kafka's: "Produce" */
    int16_t min; /* versions of the schema */
    int16_t max;
    int16_t flexible_from; /* first flexible version; -1: never */
    size_t request_size; /* of struct kw_<api>_request */
    size_t response_size;
    const struct kw_message *request;
    const struct kw_message *response;
};

enum { KW_API_VERSIONS = 18 };

/* NULL when the key is unknown. */
const struct kw_api *kw_api_find(int16_t key);
/* All APIs by rising key. */
const struct kw_api *const *kw_api_all(size_t *ret_n);

/* Messages that are not APIs: records of internal topics, embedded protocols. */
const struct kw_message *const *kw_records_all(size_t *ret_n);

static inline bool kw_api_flexible(const struct kw_api *api, int16_t version)
{
    return api->flexible_from >= 0 && version >= api->flexible_from;
}

/* The four directions, untyped; see kw_decode and kw_encode. `out` and `in` point to the API's struct. */
static inline int kw_api_decode_request(const struct kw_api *api, struct kw_cursor *c,
                                        int16_t version, struct kc_arena *a, void *out)
{
    return kw_decode(api->request, c, version, a, out);
}
static inline int kw_api_decode_response(const struct kw_api *api, struct kw_cursor *c,
                                         int16_t version, struct kc_arena *a, void *out)
{
    return kw_decode(api->response, c, version, a, out);
}
static inline void kw_api_encode_request(const struct kw_api *api, struct kw_writer *w,
                                         int16_t version, const void *in)
{
    kw_encode(api->request, w, version, in);
}
static inline void kw_api_encode_response(const struct kw_api *api, struct kw_writer *w,
                                          int16_t version, const void *in)
{
    kw_encode(api->response, w, version, in);
}
static inline void kw_api_init_request(const struct kw_api *api, void *out)
{
    kw_struct_init(api->request->root, out);
}

struct kw_request_header {
    int16_t api_key;
    int16_t api_version;
    int32_t correlation;
    struct kc_str client_id; /* nullable; borrows from the frame */
};

/* Reads header v1, or v2 where the version is flexible; the client id is a plain nullable string in
 * both. Returns 0, or the cursor's error; KC_E_UNSUPPORTED for a key that is not in the table (key,
 * version and correlation are then filled). Whether the version is in range is for the caller: a
 * too new ApiVersions is answered, everything else closes the connection. */
int kw_request_header_decode(struct kw_cursor *c, struct kw_request_header *ret) KC_MUST_CHECK;
void kw_request_header_encode(struct kw_writer *w, const struct kw_request_header *h);

/* v0, or v1 where the version is flexible; always v0 for ApiVersions, whose client cannot know
 * which versions we speak (KIP-511). */
int kw_response_header_decode(struct kw_cursor *c, const struct kw_api *api, int16_t version,
                              int32_t *ret_correlation) KC_MUST_CHECK;
void kw_response_header_encode(struct kw_writer *w, const struct kw_api *api, int16_t version,
                               int32_t correlation);

#endif
