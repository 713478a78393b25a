/* The data map of a ConfigMap: plain JSON, or gzip in base64 past KI_COMPRESS_ABOVE. */
#include "image/ki_internal.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/kc_b64.h"
#include "base/kc_dyn.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"

static const char plain_key[] = "image.json", gzip_key[] = "image.json.gz";

enum { GZIP_WINDOW = 15 + 16 /* gzip framing */, CHUNK = 64 * 1024 };

static char *gzip_b64(const char *text, size_t len, size_t *ret_len)
{
    z_stream z = {0};
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
        return NULL;
    }
    char *b64 = NULL;
    size_t room = deflateBound(&z, len);
    uint8_t *out = kc_try_alloc(room);
    if (out) {
        z.next_in = (Bytef *)(uintptr_t)text;
        z.avail_in = (uInt)len;
        z.next_out = out;
        z.avail_out = (uInt)room;
        if (deflate(&z, Z_FINISH) == Z_STREAM_END) {
            b64 = kc_b64_encode(out, room - z.avail_out, ret_len);
        }
    }
    deflateEnd(&z);
    kc_free(out);
    return b64;
}

json_t *ki_configmap_data(const json_t *doc)
{
    char *text = json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) {
        return NULL;
    }
    size_t len = strlen(text);
    json_t *data = NULL;
    if (len <= KI_COMPRESS_ABOVE) {
        data = json_pack("{s:s}", plain_key, text);
    } else if (len <= KI_DOC_MAX) {
        size_t b64_len = 0;
        char *b64 = gzip_b64(text, len, &b64_len);
        data = b64 ? json_pack("{s:s%}", gzip_key, b64, b64_len) : NULL;
        kc_free(b64);
    }
    free(text);
    return data;
}

/* Inflates into out (whose maximum is KI_DOC_MAX: a bomb is an error, not memory). */
static int gunzip(const uint8_t *in, size_t len, struct kc_dyn *out, struct kc_err *err)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in, .avail_in = (uInt)len};
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK) {
        return kc_fail(err, KC_E_TOO_LARGE, "no memory for zlib");
    }
    int rc;
    do {
        size_t step = KC_MIN((size_t)CHUNK, out->max - out->len);
        uint8_t *p = step ? kc_dyn_extend(out, step) : NULL;
        if (!p) {
            inflateEnd(&z);
            return kc_fail(err, KC_E_TOO_LARGE, "image unfolds past %d bytes", KI_DOC_MAX);
        }
        z.next_out = p;
        z.avail_out = (uInt)step;
        rc = inflate(&z, Z_NO_FLUSH);
        out->len -= z.avail_out;
    } while (rc == Z_OK && (z.avail_in || z.avail_out == 0));
    bool rest = z.avail_in != 0;
    inflateEnd(&z);
    return rc == Z_STREAM_END && !rest ? 0
                                       : kc_fail(err, KC_E_MALFORMED, "image is not whole gzip");
}

static int load(const void *text, size_t len, json_t **ret, struct kc_err *err)
{
    if (len > KI_DOC_MAX) {
        return kc_fail(err, KC_E_TOO_LARGE, "image of %zu bytes", len);
    }
    json_error_t je;
    json_t *doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!doc || !json_is_object(doc)) {
        json_decref(doc);
        return kc_fail(err, KC_E_MALFORMED, "image is no JSON object: %s", doc ? "" : je.text);
    }
    *ret = doc;
    return 0;
}

static int load_gzip(const json_t *b64, json_t **ret, struct kc_err *err)
{
    size_t n = json_string_length(b64), raw_len;
    if (n > KI_DOC_MAX) {
        return kc_fail(err, KC_E_TOO_LARGE, "image of %zu bytes", n);
    }
    uint8_t *raw = kc_b64_decode((struct kc_str){json_string_value(b64), (int32_t)n}, &raw_len);
    if (!raw) {
        return kc_fail(err, KC_E_MALFORMED, "image is not base64");
    }
    struct kc_dyn text;
    kc_dyn_init(&text, KI_DOC_MAX);
    int rc = gunzip(raw, raw_len, &text, err);
    if (rc == 0) {
        rc = load(text.data, text.len, ret, err);
    }
    kc_dyn_fini(&text);
    kc_free(raw);
    return rc;
}

int ki_configmap_parse(const json_t *configmap, json_t **ret, struct kc_err *err)
{
    const json_t *data = json_object_get(configmap, "data");
    const json_t *plain = json_object_get(data, plain_key), *gzip = json_object_get(data, gzip_key);
    if (json_is_string(gzip)) {
        return load_gzip(gzip, ret, err);
    }
    if (json_is_string(plain)) {
        return load(json_string_value(plain), json_string_length(plain), ret, err);
    }
    return kc_fail(err, KC_E_NOT_FOUND, "ConfigMap holds no image");
}
