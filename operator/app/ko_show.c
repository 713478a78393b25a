/* kaas-operator local status and wait: what the files of a local host say. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/ko_commands.h"
#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "local/lo_files.h"
#include "reconcile/ko_cond.h"
#include "store/ko_object.h"

enum { COLUMNS_MAX = 10, ROWS_MAX = 256, POLL_MS = 20 };

struct table {
    int columns, rows;
    char *cell[ROWS_MAX][COLUMNS_MAX];
};

static void put(struct table *t, int row, int column, const char *text)
{
    t->cell[row][column] = kc_strdup(text);
    t->rows = KC_MAX(t->rows, row + 1);
    t->columns = KC_MAX(t->columns, column + 1);
}

static void put_int(struct table *t, int row, int column, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    put(t, row, column, text);
}

static void print(struct table *t)
{
    int width[COLUMNS_MAX] = {0};
    for (int r = 0; r < t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            width[c] = KC_MAX(width[c], (int)strlen(t->cell[r][c]));
        }
    }
    for (int r = 0; r < t->rows; r++) {
        for (int c = 0; c + 1 < t->columns; c++) {
            printf("%-*s   ", width[c], t->cell[r][c]);
        }
        printf("%s\n", t->cell[r][t->columns - 1]);
    }
    for (int r = 0; r < t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            kc_free(t->cell[r][c]);
        }
    }
    *t = (struct table){0};
}

static void heads(struct table *t, const char *const *names)
{
    for (int i = 0; names[i]; i++) {
        put(t, 0, i, names[i]);
    }
}

static void cluster_row(struct table *t, int r, const json_t *d)
{
    put(t, r, 0, ko_name(d));
    put_int(t, r, 1, kc_json_int(d, "spec.replicas", 0));
    put_int(t, r, 2, kc_json_int(d, "status.serving", 0));
    put(t, r, 3, kc_json_str(d, "status.fencedBrokers", ""));
    put(t, r, 4, kc_json_str(d, "status.drainingBrokers", ""));
    put_int(t, r, 5, kc_json_int(d, "status.partitions", 0));
    put_int(t, r, 6, kc_json_int(d, "status.offlinePartitions", 0));
    put(t, r, 7, kc_json_str(d, "status.version", ""));
    put(t, r, 8, ko_cond_status(d, "Ready"));
}

/* A row of the registry, out of the same status as the cluster's line: the two cannot disagree. */
static void broker_row(struct table *t, int r, const char *cluster, const json_t *row)
{
    char name[300];
    snprintf(name, sizeof(name), "%s-%d", cluster, (int)kc_json_int(row, "id", -1));
    put(t, r, 0, name);
    put(t, r, 1, kc_json_str(row, "state", ""));
    put(t, r, 2, kc_json_str(row, "health", ""));
    put(t, r, 3, kc_json_str(row, "reason", ""));
    put_int(t, r, 4, kc_json_int(row, "partitions", 0));
    put_int(t, r, 5, kc_json_int(row, "slots", 0));
    put(t, r, 6, kc_json_str(row, "version", ""));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(ko_name(*(json_t *const *)a), ko_name(*(json_t *const *)b));
}

/* All objects of a kind, over the namespaces, sorted; returns how many. */
static int load(const char *dir, const char *plural, json_t *ret[ROWS_MAX])
{
    char path[PATH_MAX], file[PATH_MAX];
    int n = 0;
    snprintf(path, sizeof(path), "%.3000s/objects/%s", dir, plural);
    DIR *top = opendir(path);
    for (struct dirent *ns; top && (ns = readdir(top));) {
        if (ns->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "%.3000s/objects/%s/%s", dir, plural, ns->d_name);
        DIR *sub = opendir(path);
        for (struct dirent *e; sub && (e = readdir(sub));) {
            size_t len = strlen(e->d_name);
            if (len < 6 || strcmp(e->d_name + len - 5, ".json") != 0 || n == ROWS_MAX - 1) {
                continue;
            }
            snprintf(file, sizeof(file), "%.3500s/%s", path, e->d_name);
            json_t *doc = json_load_file(file, 0, NULL);
            if (doc) {
                ret[n++] = doc;
            }
        }
        if (sub) {
            closedir(sub);
        }
    }
    if (top) {
        closedir(top);
    }
    qsort(ret, (size_t)n, sizeof(*ret), by_name);
    return n;
}

int ko_show_status(const struct ko_args *a, struct kc_err *err)
{
    static const char *const cluster_heads[] = {"NAME",     "DESIRED",    "SERVING", "FENCED",
                                                "DRAINING", "PARTITIONS", "OFFLINE", "VERSION",
                                                "READY",    NULL};
    static const char *const broker_heads[] = {"NAME",       "STATE", "HEALTH",  "REASON",
                                               "PARTITIONS", "SLOTS", "VERSION", NULL};
    static struct table t, brokers;
    json_t *docs[ROWS_MAX];
    int rows = 0;
    int n = load(a->dir, "kaasclusters", docs);
    if (n == 0) {
        return kc_fail(err, KC_E_NOT_FOUND, "%s: no cluster there", a->dir);
    }
    heads(&t, cluster_heads);
    heads(&brokers, broker_heads);
    for (int i = 0; i < n; i++) {
        size_t k;
        json_t *row;
        cluster_row(&t, i + 1, docs[i]);
        json_array_foreach(kc_json_at(docs[i], "status.brokers"), k, row)
        {
            if (rows + 1 < ROWS_MAX) {
                broker_row(&brokers, ++rows, ko_name(docs[i]), row);
            }
        }
        json_decref(docs[i]);
    }
    print(&t);
    putchar('\n');
    print(&brokers);
    return 0;
}

/* The file "ready" names the process that became Ready, so an older run's is not believed. */
static bool is_ready(const char *dir)
{
    char path[PATH_MAX];
    size_t len;
    snprintf(path, sizeof(path), "%.4000s/ready", dir);
    char *text = lo_read_file(path, &len, NULL);
    int pid = text ? (int)strtol(text, NULL, 10) : 0;
    kc_free(text);
    return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

int ko_show_wait(const struct ko_args *a, struct kc_err *err)
{
    int64_t until = kc_mono_ms() + a->timeout_ms;
    while (!is_ready(a->dir)) {
        if (kc_mono_ms() >= until) {
            return kc_fail(err, KC_E_TIMEOUT, "%s: not Ready within %lld s", a->dir,
                           (long long)a->timeout_ms / 1000);
        }
        poll(NULL, 0, POLL_MS);
    }
    return 0;
}
