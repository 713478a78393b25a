#include "wire/kw_api.h"

int kw_request_header_decode(struct kw_cursor *c, struct kw_request_header *ret)
{
    ret->api_key = kw_cursor_i16(c);
    ret->api_version = kw_cursor_i16(c);
    ret->correlation = kw_cursor_i32(c);
    ret->client_id = KC_STR_NULL;
    const struct kw_api *api = kw_api_find(ret->api_key);
    if (!c->error && !api) {
        kw_cursor_fail(c, KC_E_UNSUPPORTED);
        return c->error;
    }
    ret->client_id = kw_cursor_str(c, false, true);
    if (!c->error && kw_api_flexible(api, ret->api_version)) {
        kw_cursor_skip_tags(c);
    }
    return c->error;
}

void kw_request_header_encode(struct kw_writer *w, const struct kw_request_header *h)
{
    const struct kw_api *api = kw_api_find(h->api_key);
    if (!api) {
        kw_writer_fail(w, KC_E_UNSUPPORTED);
        return;
    }
    kw_writer_i16(w, h->api_key);
    kw_writer_i16(w, h->api_version);
    kw_writer_i32(w, h->correlation);
    kw_writer_str(w, h->client_id, false);
    if (kw_api_flexible(api, h->api_version)) {
        kw_writer_uvarint(w, 0);
    }
}

static bool response_header_has_tags(const struct kw_api *api, int16_t version)
{
    return api->key != KW_API_VERSIONS && kw_api_flexible(api, version);
}

int kw_response_header_decode(struct kw_cursor *c, const struct kw_api *api, int16_t version,
                              int32_t *ret_correlation)
{
    int32_t correlation = kw_cursor_i32(c);
    if (response_header_has_tags(api, version)) {
        kw_cursor_skip_tags(c);
    }
    if (!c->error) {
        *ret_correlation = correlation;
    }
    return c->error;
}

void kw_response_header_encode(struct kw_writer *w, const struct kw_api *api, int16_t version,
                               int32_t correlation)
{
    kw_writer_i32(w, correlation);
    if (response_header_has_tags(api, version)) {
        kw_writer_uvarint(w, 0);
    }
}
