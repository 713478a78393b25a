/* Images from files: the local host's objects, and the layout of the projected mount. */
#include "kt.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "cl_fixture.h"
#include "cluster/kl_source.h"
#include "kt_dir.h"

static char dir[KT_DIR_MAX];
static struct clf c;

static void write_doc(const char *name, json_t *doc)
{
    json_t *cm =
        json_pack("{s:{s:s},s:o}", "metadata", "uid", c.order.uid, "data", ki_configmap_data(doc));
    char path[160], *text = json_dumps(cm, JSON_COMPACT);
    snprintf(path, sizeof(path), "%s/%s.json", dir, name);
    kt_file_write(path, "%s", text);
    free(text);
    json_decref(cm);
    json_decref(doc);
}

static void write_shards(const struct ki_image *im)
{
    for (int i = 0; i < KP_SHARDS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "demo-image-%d", i);
        write_doc(name, ki_shard_encode(im->shards[i], NULL));
    }
}

static void setup(void)
{
    kt_dir_make(dir);
    clf_init(&c, 3);
    clf_topic(&c, "a", 3);
    clf_topic(&c, "b", 2);
}

static void done(void)
{
    kt_dir_remove(dir);
}

static void a_changed_shard_alone_is_read_again(void)
{
    setup();
    struct ki_image *one = clf_publish(&c), *got = NULL, *next = NULL;
    write_shards(one);
    write_doc("demo-image", ki_root_encode(one));
    KT_EQ(kl_read_files(dir, "demo-image", false, NULL, &got, NULL), 0);
    KT_STR(got->order.uid, "uid-1");
    KT_EQ(got->n_topics, 2);
    c.topics[0].parts[1].assigned = 2;
    struct ki_image *two = clf_publish(&c);
    int32_t s = kp_shard_of(&c.topics[0].id);
    char name[32], path[100];
    snprintf(name, sizeof(name), "demo-image-%d", s);
    write_doc(name, ki_shard_encode(two->shards[s], one->shards[s]));
    for (int i = 0; i < KP_SHARDS; i++) { /* nothing else is even there any more */
        snprintf(path, sizeof(path), "%s/demo-image-%d.json", dir, i);
        KT_TRUE(i == s || unlink(path) == 0);
    }
    /* The root that stands can be assembled while the shard is already newer. */
    struct ki_image *again = NULL;
    KT_EQ(kl_read_files(dir, "demo-image", false, got, &again, NULL), 0);
    KT_EQ(again->order.generation, 1);
    write_doc("demo-image", ki_root_encode(two));
    KT_EQ(kl_read_files(dir, "demo-image", false, got, &next, NULL), 0);
    KT_EQ(next->order.generation, 2);
    KT_EQ(ki_part(next, &c.topics[0].id, 1)->assigned, 2);
    for (int i = 0; i < KP_SHARDS; i++) {
        KT_EQ(next->shards[i] == got->shards[i], i != s);
    }
    ki_image_unref(again);
    ki_image_unref(next);
    ki_image_unref(got);
    ki_image_unref(one);
    ki_image_unref(two);
    done();
}

static void a_shard_must_have_the_hash_of_the_root(void)
{
    setup();
    struct ki_image *one = clf_publish(&c), *got = NULL;
    c.topics[0].parts[1].assigned = 2;
    struct ki_image *two = clf_publish(&c);
    write_shards(one);
    write_doc("demo-image", ki_root_encode(two));
    KT_EQ(kl_read_files(dir, "demo-image", false, NULL, &got, NULL), KC_E_NOT_FOUND);
    ki_image_unref(one);
    ki_image_unref(two);
    done();
}

static void broken_and_missing_files_are_errors(void)
{
    setup();
    struct ki_image *one = clf_publish(&c), *got = NULL;
    struct kc_err err;
    char path[100];
    KT_EQ(kl_read_files(dir, "demo-image", false, NULL, &got, &err), -2);
    write_shards(one);
    write_doc("demo-image", ki_root_encode(one));
    snprintf(path, sizeof(path), "%s/demo-image-7.json", dir);
    kt_file_write(path, "{\"data\":");
    KT_EQ(kl_read_files(dir, "demo-image", false, NULL, &got, &err), KC_E_MALFORMED);
    snprintf(path, sizeof(path), "%s/demo-image.json", dir);
    kt_file_write(path, "{\"data\":{}}");
    KT_EQ(kl_read_files(dir, "demo-image", false, NULL, &got, &err), KC_E_NOT_FOUND);
    KT_TRUE(got == NULL);
    ki_image_unref(one);
    done();
}

/* What the kubelet projects: <mount>/<ConfigMap>/<key>. */
static void the_projected_mount_is_read(void)
{
    setup();
    struct ki_image *one = clf_publish(&c), *got = NULL;
    char path[120], folder[100];
    for (int i = -1; i < KP_SHARDS; i++) {
        json_t *doc = i < 0 ? ki_root_encode(one) : ki_shard_encode(one->shards[i], NULL);
        char *text = json_dumps(doc, JSON_COMPACT);
        snprintf(folder, sizeof(folder), i < 0 ? "%s/demo-image" : "%s/demo-image-%d", dir, i);
        mkdir(folder, 0700);
        snprintf(path, sizeof(path), "%s/image.json", folder);
        kt_file_write(path, "%s", text);
        free(text);
        json_decref(doc);
    }
    KT_EQ(kl_read_files(dir, "demo-image", true, NULL, &got, NULL), 0);
    KT_STR(got->order.uid, "");
    KT_EQ(got->order.generation, 1);
    KT_EQ(got->n_topics, 2);
    for (int i = -1; i < KP_SHARDS; i++) {
        snprintf(folder, sizeof(folder), i < 0 ? "%s/demo-image" : "%s/demo-image-%d", dir, i);
        snprintf(path, sizeof(path), "%s/image.json", folder);
        unlink(path);
        rmdir(folder);
    }
    ki_image_unref(got);
    ki_image_unref(one);
    done();
}

/* ---- the directory source on a loop ---- */

static struct rt_loop loop;
static struct rt_pool *pool;
static struct kl_source *source;
static int n_told;
static uint64_t told_generation;

static void stop_loop(void)
{
    source->ops->free(source);
    rt_loop_stop(&loop);
}

static void on_image(void *ctx, struct ki_image *im, bool fresh)
{
    (void)ctx;
    KT_TRUE(fresh);
    n_told++;
    KT_EQ(im->order.generation, told_generation + 1);
    told_generation = im->order.generation;
    ki_image_unref(im);
    if (n_told == 3) {
        stop_loop();
        return;
    }
    struct ki_image *next = clf_publish(&c);
    write_shards(next);
    write_doc("demo-image", ki_root_encode(next));
    ki_image_unref(next);
}

static void begin(void *arg)
{
    (void)arg;
    source = kl_source_directory(&loop, pool, dir, "demo-image", on_image, NULL);
    KT_REQUIRE(source != NULL);
    struct ki_image *first = clf_publish(&c);
    write_shards(first);
    write_doc("demo-image", ki_root_encode(first));
    ki_image_unref(first);
}

static void the_directory_is_followed(void)
{
    setup();
    KT_EQ(rt_loop_init(&loop, "test"), 0);
    pool = rt_pool_new("io", 1);
    n_told = 0;
    told_generation = 0;
    rt_call(&loop, begin, NULL);
    rt_loop_run(&loop);
    KT_EQ(n_told, 3);
    rt_pool_free(pool);
    done();
}

KT_MAIN("kl_source", KT(a_changed_shard_alone_is_read_again),
        KT(a_shard_must_have_the_hash_of_the_root), KT(broken_and_missing_files_are_errors),
        KT(the_projected_mount_is_read), KT(the_directory_is_followed))
