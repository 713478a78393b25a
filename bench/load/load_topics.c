/* load_topics.c - many topics: created, led, deleted; who leads what. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kc_mem.h"
#include "load.h"

enum { LED_S = 180, REQUEST_MS = 120000 };

static void w_name(const struct ld *l, struct ld_w *w, int64_t i)
{
    char name[LD_HOST];
    snprintf(name, sizeof(name), "%s-%ld", l->o.topic, (long)i);
    ld_w_str(w, name);
}

static void w_configs(const struct ld *l, struct ld_w *w)
{
    ld_w32(w, l->o.n_configs);
    for (int i = 0; i < l->o.n_configs; i++) {
        const char *text = l->o.configs[i], *value = strchr(text, '=') + 1;
        ld_w16(w, (int)(value - text - 1));
        ld_w_bytes(w, text, (size_t)(value - text - 1));
        ld_w_str(w, value);
    }
}

static int dial_or_fail(const struct ld *l)
{
    int fd = ld_bootstrap(l, 0, REQUEST_MS);
    if (fd < 0) {
        ld_fail("%s: %s", l->o.bootstrap, strerror(-fd));
    }
    return fd;
}

/* Asks for topics [from, to) with CreateTopics 4; the number of those that were refused. */
static int64_t create_some(const struct ld *l, int fd, int64_t from, int64_t to)
{
    struct ld_w w = {0}, a = {0};
    char text[LD_HOST];
    int64_t errors = 0;
    ld_w_request(&w, 19, 4, 1);
    ld_w32(&w, to - from);
    for (int64_t i = from; i < to; i++) {
        w_name(l, &w, i);
        ld_w32(&w, l->o.p);
        ld_w16(&w, (int)l->o.rf);
        ld_w32(&w, 0);
        w_configs(l, &w);
    }
    ld_w32(&w, REQUEST_MS);
    ld_w8(&w, 0);
    if (ld_call(fd, &w, &a)) {
        ld_fail("CreateTopics: no answer");
    }
    struct ld_r r = {.p = a.p, .end = a.p + a.len};
    ld_r_bytes(&r, 8);
    for (int32_t n = ld_r_count(&r, 6); n > 0; n--) {
        ld_r_str(&r, text, sizeof(text));
        int16_t error = ld_r16(&r);
        ld_r_str(&r, text, sizeof(text));
        if (error && !errors++) {
            fprintf(stderr, "kaas-load: CreateTopics: error %d %s\n", error, text);
        }
    }
    if (r.bad) {
        ld_fail("CreateTopics: an answer that is none");
    }
    kc_free(w.p);
    kc_free(a.p);
    return errors;
}

/* How many partitions of an answer's topics are not led; a topic that errs is one. */
static int64_t count_unled(const struct ld *l, struct ld_r *r)
{
    char text[LD_HOST];
    int64_t unled = 0;
    int32_t topics = ld_r_count(r, 9);
    for (int32_t t = 0; t < topics && !r->bad; t++) {
        unled += ld_r16(r) != 0;
        ld_r_str(r, text, sizeof(text));
        ld_r_bytes(r, 1);
        int32_t parts = ld_r_count(r, 18);
        unled += parts != l->o.p;
        for (int32_t p = 0; p < parts && !r->bad; p++) {
            int16_t error = ld_r16(r);
            ld_r32(r);
            unled += error || ld_r32(r) < 0;
            ld_r_bytes(r, (int64_t)ld_r_count(r, 4) * 4);
            ld_r_bytes(r, (int64_t)ld_r_count(r, 4) * 4);
        }
    }
    return topics == l->o.n ? unled : unled + l->o.n;
}

/* One Metadata 4 of all the topics: how many partitions are not led, or -errno. */
static int64_t unled(const struct ld *l, int fd)
{
    struct ld_w w = {0}, a = {0};
    char text[LD_HOST];
    ld_w_request(&w, 3, 4, 1);
    ld_w32(&w, l->o.n);
    for (int64_t i = 0; i < l->o.n; i++) {
        w_name(l, &w, i);
    }
    ld_w8(&w, 0);
    int64_t n = ld_call(fd, &w, &a);
    if (!n) {
        struct ld_r r = {.p = a.p, .end = a.p + a.len};
        ld_r_bytes(&r, 8);
        for (int32_t brokers = ld_r_count(&r, 12); brokers > 0 && !r.bad; brokers--) {
            ld_r32(&r);
            ld_r_str(&r, text, sizeof(text));
            ld_r32(&r);
            ld_r_str(&r, text, sizeof(text));
        }
        ld_r_str(&r, text, sizeof(text));
        ld_r32(&r);
        n = count_unled(l, &r);
        n = r.bad ? -EPROTO : n;
    }
    kc_free(w.p);
    kc_free(a.p);
    return n;
}

/* Waits until all are led, whichever broker is asked; how many are not when it gives up. */
static int64_t wait_led(const struct ld *l)
{
    int64_t end = ld_now_ns() + (int64_t)LED_S * 1000000000, left = -1;
    int fd = -1;
    for (int i = 0; left && ld_now_ns() < end; i++) {
        fd = fd < 0 ? ld_bootstrap(l, i, 5000) : fd;
        left = fd < 0 ? fd : unled(l, fd);
        if (left < 0 && fd >= 0) {
            close(fd);
            fd = -1;
        }
        if (left) {
            usleep(left < 0 ? 2000 : 50000);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return left;
}

void ld_mode_create(struct ld *l)
{
    int64_t errors = 0;
    int fd = dial_or_fail(l);
    ld_meter_start(&l->meter, &l->o);
    for (int64_t i = 0; i < l->o.n; i += l->o.per) {
        errors += create_some(l, fd, i, KC_MIN(i + l->o.per, l->o.n));
    }
    int64_t created = ld_now_ns(), left = errors ? -1 : wait_led(l), led = ld_now_ns();
    struct ld_sums sums = {.reqs = l->o.n};
    ld_meter_print(&l->meter, l->o.mode, led, &sums);
    printf(",\"topics\":%ld,\"parts\":%ld,\"errors\":%ld,\"created_s\":%.3f,\"led_s\":%.3f,"
           "\"unled\":%ld}\n",
           (long)l->o.n, (long)(l->o.n * l->o.p), (long)errors,
           (double)(created - l->meter.start_ns) / 1e9, (double)(led - l->meter.start_ns) / 1e9,
           (long)left);
    if (errors || left) {
        ld_fail("%ld topics were refused, %ld partitions are not led", (long)errors, (long)left);
    }
    close(fd);
}

void ld_mode_led(struct ld *l)
{
    ld_meter_start(&l->meter, &l->o);
    int64_t left = wait_led(l);
    if (left) {
        ld_fail("%ld partitions are not led", (long)left);
    }
    printf("{\"mode\":\"led\",\"secs\":%.3f,\"since_t0_s\":%.3f}\n",
           (double)(ld_now_ns() - l->meter.start_ns) / 1e9, ld_wall_s() - l->o.t0);
}

void ld_mode_delete(struct ld *l)
{
    struct ld_w w = {0}, a = {0};
    char name[LD_HOST];
    int64_t errors = 0;
    int fd = dial_or_fail(l);
    ld_w_request(&w, 20, 1, 1);
    ld_w32(&w, l->o.n);
    for (int64_t i = 0; i < l->o.n; i++) {
        w_name(l, &w, i);
    }
    ld_w32(&w, REQUEST_MS);
    ld_meter_start(&l->meter, &l->o);
    if (ld_call(fd, &w, &a)) {
        ld_fail("DeleteTopics: no answer");
    }
    struct ld_r r = {.p = a.p, .end = a.p + a.len};
    ld_r_bytes(&r, 8);
    for (int32_t n = ld_r_count(&r, 4); n > 0; n--) {
        ld_r_str(&r, name, sizeof(name));
        errors += ld_r16(&r) != 0;
    }
    struct ld_sums sums = {.reqs = l->o.n};
    ld_meter_print(&l->meter, l->o.mode, ld_now_ns(), &sums);
    printf(",\"errors\":%ld}\n", (long)errors);
    if (r.bad || errors) {
        ld_fail("DeleteTopics: %ld errors", (long)errors);
    }
    close(fd);
    kc_free(w.p);
    kc_free(a.p);
}

void ld_mode_leader(struct ld *l)
{
    ld_topic_wait(l);
    printf("{\"mode\":\"leader\",\"leaders\":[");
    for (int p = 0; p < l->n_parts; p++) {
        printf("%s%d", p ? "," : "", l->parts[p].leader);
    }
    puts("]}");
}
