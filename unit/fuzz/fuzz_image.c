/* libFuzzer target: the documents a broker reads from ConfigMaps. */
#include "image/ki_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *doc = json_loadb((const char *)data, size, 0, NULL), *inner = NULL;
    if (!doc) {
        return 0;
    }
    struct kc_err err;
    struct ki_shard *shard;
    struct ki_image *root;
    if (ki_configmap_parse(doc, &inner, &err) == 0) {
        json_decref(doc);
        doc = inner;
    }
    /* The hash would keep everything behind it from being tried. */
    char hash[17];
    const json_t *content = json_object_get(doc, "content");
    if (content && ki_content_hash(content, hash)) {
        json_object_set_new(doc, "hash", json_string(hash));
    }
    if (ki_shard_decode(doc, "", &shard, &err) == 0) {
        json_t *again = ki_shard_encode(shard, NULL);
        KC_ASSERT(again != NULL);
        json_decref(again);
        ki_shard_unref(shard);
    }
    if (ki_root_decode(doc, &root, &err) == 0) {
        json_t *again = ki_root_encode(root);
        KC_ASSERT(again != NULL);
        json_decref(again);
        ki_image_unref(root);
    }
    json_decref(doc);
    return 0;
}
