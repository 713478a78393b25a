/* Every name on a volume: what it is, and what no broker makes. Contents are judged in ks_fsck.c, but
 * for the small files that are of no partition: cluster.json and the topics' meta. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "storage/ks_fsck_int.h"
#include "storage/ks_hint.h"

enum place { ROOT, INC, BROKER, TOPICS, TOPIC, PARTITION, DELETED, PIDS };

struct walk {
    struct ks_fsck_names *n;
    enum place place;
    const char *path; /* "" at the root */
    int32_t partitions; /* of the topic by its meta; -1 = not known */
};

static void list(struct ks_fsck_names *n, enum place place, const char *path, int32_t partitions);

/* ---- what names there are ---- */

static bool is_number(const char *s)
{
    int64_t v;
    return kc_parse_i64(kc_str_of(s), &v) == 0 && v >= 0;
}

static bool behind(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 && is_number(name + n);
}

static bool among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* What a crash leaves of a file that was being made, and what an NFS client keeps for those who have
 * a removed file open. */
static bool is_temporary(const char *name, enum place place)
{
    return strncmp(name, "tmp.", 4) == 0 || strncmp(name, ".nfs", 4) == 0 ||
           (place == ROOT && strncmp(name, ".probe-", 7) == 0);
}

static bool is_ours(const char *name, enum place place)
{
    /* The last two are the file system's own. */
    static const char *const root[] = {"cluster.json", "inc",        "topics",   "deleted",
                                       "pids",         "lost+found", ".snapshot"};
    struct kc_uuid id;
    struct ks_file_id file;
    switch (place) {
    case ROOT:
        return among(name, root, KC_ARRAY_LEN(root));
    case INC:
    case PIDS:
        return is_number(name);
    case BROKER:
        return ks_inc_parse(name, &id, NULL) || behind(name, "reserve.");
    case TOPICS:
    case DELETED:
        return kc_uuid_from_b64(kc_str_of(name), &id) == 0;
    case TOPIC:
        return strcmp(name, "meta") == 0 || is_number(name);
    case PARTITION:
        return behind(name, "ctl.") || ks_file_parse(name, &file) ||
               ks_hint_name_parse(name, &file);
    }
    return false;
}

/* ---- what is in them ---- */

/* The topic's partitions, -1 if that is not known. */
static int32_t check_meta(struct ks_fsck_names *n, const char *dir, const struct kc_uuid *id)
{
    struct ks_topic_meta meta = {0};
    int rc = ks_topic_meta_read(n->fs, id, &meta);
    kc_free(meta.configs_json);
    if (rc == -ENOENT) {
        n->r->unlisted++;
        fprintf(n->out, "%s has no meta: no broker lists it\n", dir);
    } else if (rc) {
        n->r->errors++;
        fprintf(n->out, "ERROR %s/meta: %s: no broker lists any topic\n", dir, kc_strerror(rc));
    }
    return rc ? -1 : meta.partitions;
}

static void check_cluster(struct ks_fsck_names *n)
{
    struct kc_err err = {0};
    char id[KC_UUID_B64_LEN + 1];
    int rc = ks_cluster_id_read(n->fs, id, &err);
    if (rc == -ENOENT) {
        fprintf(n->out, "no cluster.json: the next broker that starts makes one\n");
    } else if (rc) {
        n->r->errors++;
        fprintf(n->out, "ERROR %s\n", err.msg);
    }
}

static void descend(const struct walk *w, const char *path, const char *name)
{
    struct kc_uuid id;
    int64_t number;
    switch (w->place) {
    case INC:
        list(w->n, BROKER, path, -1);
        break;
    case TOPICS:
        if (kc_uuid_from_b64(kc_str_of(name), &id) == 0 && !ks_ids_have(&w->n->deleted, &id)) {
            list(w->n, TOPIC, path, check_meta(w->n, path, &id));
        } /* else it is on its way out */
        break;
    case TOPIC:
        if (kc_parse_i64(kc_str_of(name), &number)) {
            break; /* meta */
        }
        list(w->n, PARTITION, path, -1);
        if (w->partitions >= 0 && number >= w->partitions) {
            w->n->r->unlisted++;
            fprintf(w->n->out, "%s is beyond the %d partitions of its topic: nobody opens it\n",
                    path, w->partitions);
        }
        break;
    default:
        break;
    }
}

static bool on_name(void *arg, const char *name)
{
    const struct walk *w = arg;
    struct ks_fsck_names *n = w->n;
    char path[KS_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s%s%.60s", w->path, *w->path ? "/" : "", name);
    if (is_ours(name, w->place)) {
        descend(w, path, name);
    } else if (is_temporary(name, w->place)) {
        n->r->temporary++;
        if (n->verbose) {
            fprintf(n->out, "%s: left of something unfinished\n", path);
        }
    } else {
        n->r->strange++;
        fprintf(n->out, "%s: no broker makes such a name\n", path);
    }
    return true;
}

static void list(struct ks_fsck_names *n, enum place place, const char *path, int32_t partitions)
{
    struct walk w = {.n = n, .place = place, .path = path, .partitions = partitions};
    int rc = ks_fs_list(n->fs, *path ? path : ".", on_name, &w);
    if (rc && rc != -ENOENT) { /* gone meanwhile, or not made yet */
        n->r->errors++;
        fprintf(n->out, "ERROR %s: %s\n", *path ? path : "the volume", kc_strerror(rc));
    }
}

void ks_fsck_names(struct ks_fsck_names *n)
{
    struct kc_err err = {0};
    int rc = ks_ids_list(n->fs, "deleted", &n->deleted, &err);
    if (rc && rc != -ENOENT) {
        n->r->errors++;
        fprintf(n->out, "ERROR %s\n", err.msg);
    }
    check_cluster(n);
    list(n, ROOT, "", -1);
    list(n, INC, "inc", -1);
    list(n, TOPICS, "topics", -1);
    list(n, DELETED, "deleted", -1);
    list(n, PIDS, "pids", -1);
    n->r->tombstones = (uint64_t)n->deleted.n;
    ks_ids_fini(&n->deleted);
}
