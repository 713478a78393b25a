/* The image from an API server that the test plays: which ConfigMaps are read, and what is told when. */
#include "kt.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "cl_fixture.h"
#include "cluster/kl_source.h"
#include "fake_api.h"
#include "kt_dir.h"

struct rig {
    struct fake_api api;
    struct rt_pool *io;
    struct kl_source *source;
    struct clf c;
    struct ki_image *standing; /* what the API server holds */
    struct fake_conn *stream;
    int32_t late_shard; /* 404 for it, so often */
    int late;
    int gets, told, copies;
    uint64_t generation; /* of the newest told */
    bool down; /* the API server answers 500 */
    char dir[KT_DIR_MAX], kubeconfig[100];
};

static json_t *configmap(const char *name, json_t *doc, const char *version)
{
    json_t *cm = fake_object(name, "uid-1", version);
    json_object_set_new(cm, "data", ki_configmap_data(doc));
    json_decref(doc);
    return cm;
}

static json_t *root(const struct rig *g)
{
    char version[16];
    snprintf(version, sizeof(version), "%llu", (unsigned long long)g->c.order.generation + 100);
    return configmap("demo-image", ki_root_encode(g->standing), version);
}

static void handle(void *ctx, const struct fake_request *r)
{
    struct rig *g = ctx;
    const char *name = strstr(r->target, "/configmaps/demo-image-");
    if (g->down) {
        fake_status(r->conn, 500, "InternalError", "down");
    } else if (strstr(r->target, "watch=1")) {
        g->stream = r->conn;
        fake_stream(r->conn);
    } else if (name) {
        g->gets++;
        long shard = strtol(name + strlen("/configmaps/demo-image-"), NULL, 10);
        if (shard == g->late_shard && g->late > 0) {
            g->late--;
            fake_status(r->conn, 404, "NotFound", "not yet");
            return;
        }
        fake_reply(r->conn, 200, NULL,
                   configmap("shard", ki_shard_encode(g->standing->shards[shard], NULL), "1"));
    } else {
        KT_TRUE(strstr(r->target, "metadata.name") != NULL); /* by name: RBAC allows no more */
        json_t *list = fake_list("100");
        json_array_append_new(json_object_get(list, "items"), root(g));
        fake_reply(r->conn, 200, NULL, list);
    }
}

static void on_image(void *ctx, struct ki_image *im, bool fresh)
{
    struct rig *g = ctx;
    g->told++;
    g->copies += !fresh;
    if (fresh) {
        KT_STR(im->order.uid, "uid-1");
    }
    g->generation = im->order.generation;
    ki_image_unref(im);
}

static void publish(struct rig *g)
{
    ki_image_unref(g->standing);
    g->standing = clf_publish(&g->c);
}

static void setup(struct rig *g)
{
    memset(g, 0, sizeof(*g));
    kt_dir_make(g->dir);
    fake_api_init(&g->api, handle, g);
    snprintf(g->kubeconfig, sizeof(g->kubeconfig), "%s/kubeconfig", g->dir);
    kt_file_write(
        g->kubeconfig,
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: \"%s\"}}]\nusers: [{name: u, user: {}}]\n",
        g->api.config.server);
    setenv("KUBECONFIG", g->kubeconfig, 1);
    g->io = rt_pool_new("io", 1);
    clf_init(&g->c, 3);
    clf_topic(&g->c, "a", 3);
    clf_topic(&g->c, "b", 2);
    publish(g);
}

static void start(struct rig *g, const char *mount)
{
    struct kc_err err;
    g->source = kl_source_kubernetes(&g->api.loop, g->io, "default", "demo-image", mount, on_image,
                                     g, &err);
    KT_REQUIRE(g->source != NULL);
}

static void done(struct rig *g)
{
    g->source->ops->free(g->source);
    rt_pool_free(g->io);
    fake_api_fini(&g->api);
    ki_image_unref(g->standing);
    kt_dir_remove(g->dir);
}

static void changed_shards_alone_are_fetched(void)
{
    struct rig g;
    setup(&g);
    start(&g, NULL);
    KT_TRUE(fake_api_until(&g.api, &g.told, 1));
    KT_EQ(g.generation, 1);
    KT_EQ(g.gets, KP_SHARDS);
    g.c.topics[0].parts[1].assigned = 2;
    publish(&g);
    fake_event(g.stream, "MODIFIED", root(&g));
    KT_TRUE(fake_api_until(&g.api, &g.told, 2));
    KT_EQ(g.generation, 2);
    KT_EQ(g.gets, KP_SHARDS + 1);
    publish(&g); /* rows alone */
    fake_event(g.stream, "MODIFIED", root(&g));
    KT_TRUE(fake_api_until(&g.api, &g.told, 3));
    KT_EQ(g.gets, KP_SHARDS + 1);
    KT_EQ(g.copies, 0);
    done(&g);
}

static void a_shard_that_is_not_there_yet_is_asked_for_again(void)
{
    struct rig g;
    setup(&g);
    g.late_shard = 9;
    g.late = 2;
    start(&g, NULL);
    KT_TRUE(fake_api_until(&g.api, &g.told, 1));
    KT_EQ(g.late, 0);
    KT_EQ(g.gets, KP_SHARDS + 2);
    done(&g);
}

/* A newer root while an older one is being assembled: what both name is kept, the newer is told. */
static void the_newest_root_wins(void)
{
    struct rig g;
    setup(&g);
    g.late_shard = kp_shard_of(&g.c.topics[0].id);
    g.late = 1000;
    start(&g, NULL);
    KT_TRUE(fake_api_until(&g.api, &g.gets, KP_SHARDS));
    KT_EQ(g.told, 0);
    g.c.topics[0].parts[0].assigned = 1;
    publish(&g);
    g.late = 0;
    fake_event(g.stream, "MODIFIED", root(&g));
    KT_TRUE(fake_api_until(&g.api, &g.told, 1));
    KT_EQ(g.generation, 2);
    KT_TRUE(g.gets < 2 * KP_SHARDS);
    done(&g);
}

static void remove_mount(const struct rig *g)
{
    for (int i = -1; i < KP_SHARDS; i++) {
        char folder[100], path[120];
        snprintf(folder, sizeof(folder), i < 0 ? "%s/demo-image" : "%s/demo-image-%d", g->dir, i);
        snprintf(path, sizeof(path), "%s/image.json", folder);
        unlink(path);
        rmdir(folder);
    }
}

static void write_mount(const struct rig *g)
{
    for (int i = -1; i < KP_SHARDS; i++) {
        json_t *doc =
            i < 0 ? ki_root_encode(g->standing) : ki_shard_encode(g->standing->shards[i], NULL);
        char *text = json_dumps(doc, JSON_COMPACT), folder[100], path[120];
        snprintf(folder, sizeof(folder), i < 0 ? "%s/demo-image" : "%s/demo-image-%d", g->dir, i);
        mkdir(folder, 0700);
        snprintf(path, sizeof(path), "%s/image.json", folder);
        kt_file_write(path, "%s", text);
        free(text);
        json_decref(doc);
    }
}

/* design.md, 4: the projected mount is the boot-time copy when the API server is unreachable. */
static void the_mounted_copy_is_told_while_the_api_server_is_down(void)
{
    struct rig g;
    setup(&g);
    write_mount(&g);
    publish(&g);
    g.down = true;
    start(&g, g.dir);
    KT_TRUE(fake_api_until(&g.api, &g.told, 1));
    KT_EQ(g.copies, 1);
    KT_EQ(g.generation, 1);
    g.down = false;
    KT_TRUE(fake_api_until(&g.api, &g.told, 2));
    KT_EQ(g.copies, 1);
    KT_EQ(g.generation, 2);
    remove_mount(&g);
    done(&g);
}

KT_MAIN("kl_k8s_source", KT(changed_shards_alone_are_fetched),
        KT(a_shard_that_is_not_there_yet_is_asked_for_again), KT(the_newest_root_wins),
        KT(the_mounted_copy_is_told_while_the_api_server_is_down))
