/* Histories from text. A line that is cut off at the end of a file (its writer was killed) is left
 * out; anything else that does not parse is an error: a checker must not guess. */
#include "history/hist.h"

#include <stdlib.h>
#include <string.h>

#include "base/kc_mem.h"

struct line {
    const char *p, *end;
};

struct loading {
    struct hist *h;
    struct hist_process *process;
    uint16_t number;
    int64_t last_topic; /* of the line before, -1 = none: most lines name the same */
};

void *hist_grow(void *array, size_t n, size_t *room, size_t size)
{
    if (n < *room) {
        return array;
    }
    *room = *room ? *room * 2 : 64;
    return kc_realloc(array, *room * size);
}

/* ---- fields ---- */

static bool word(struct line *l, const char **ret, size_t *ret_len)
{
    const char *p = l->p, *q = p;
    while (q < l->end && *q != ' ') {
        q++;
    }
    if (q == p) {
        return false;
    }
    *ret = p;
    *ret_len = (size_t)(q - p);
    l->p = q < l->end ? q + 1 : q;
    return true;
}

/* Digits up to `stop` or the end of the line; moves past them and one stop. */
static bool digits(struct line *l, char stop, int64_t *ret)
{
    const char *p = l->p;
    bool minus = p < l->end && *p == '-';
    p += minus;
    const char *from = p;
    int64_t v = 0;
    while (p < l->end && *p >= '0' && *p <= '9' && p - from < 18) {
        v = v * 10 + (*p++ - '0');
    }
    if (p == from || (p < l->end && *p != stop && *p != ' ')) {
        return false;
    }
    *ret = minus ? -v : v;
    l->p = p < l->end ? p + 1 : p;
    return true;
}

static bool number(struct line *l, int64_t min, int64_t max, int64_t *ret)
{
    return digits(l, ' ', ret) && *ret >= min && *ret <= max;
}

static bool time_of(struct line *l, int64_t *ret)
{
    return number(l, 0, INT64_MAX, ret);
}

static bool offset_of(struct line *l, int64_t *ret)
{
    return number(l, -1, HIST_OFFSET_MAX, ret);
}

/* ---- names ---- */

static int32_t intern(char **names, int32_t *n, const char *name, size_t len)
{
    for (int32_t i = 0; i < *n; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            return i;
        }
    }
    if (*n == HIST_NAMES_MAX) {
        return -1;
    }
    names[*n] = kc_strndup(name, len);
    return (*n)++;
}

struct hist_topic *hist_topic(struct hist *h, const char *name, size_t len)
{
    for (int32_t i = 0; i < h->n_topics; i++) {
        if (strlen(h->topics[i].name) == len && memcmp(h->topics[i].name, name, len) == 0) {
            return &h->topics[i];
        }
    }
    if (h->n_topics == HIST_NAMES_MAX) {
        return NULL;
    }
    struct hist_topic *t = &h->topics[h->n_topics++];
    *t = (struct hist_topic){.name = kc_strndup(name, len)};
    return t;
}

static bool topic_of(struct loading *l, struct line *in, int16_t *ret)
{
    const char *name;
    size_t len;
    if (!word(in, &name, &len)) {
        return false;
    }
    if (l->last_topic >= 0) {
        const char *last = l->h->topics[l->last_topic].name;
        if (strlen(last) == len && memcmp(last, name, len) == 0) {
            *ret = (int16_t)l->last_topic;
            return true;
        }
    }
    struct hist_topic *t = hist_topic(l->h, name, len);
    if (!t) {
        return false;
    }
    *ret = (int16_t)(t - l->h->topics);
    l->last_topic = *ret;
    return true;
}

/* The index of a partition of a topic, made if need be. */
static int32_t part_index(struct hist *h, int16_t topic, int32_t part)
{
    struct hist_topic *t = &h->topics[topic];
    if (part >= t->n_parts) {
        t->parts = kc_realloc(t->parts, (size_t)(part + 1) * sizeof(*t->parts));
        while (t->n_parts <= part) {
            t->parts[t->n_parts++] = -1;
        }
    }
    if (t->parts[part] < 0) {
        h->parts = hist_grow(h->parts, h->n_parts, &h->room_parts, sizeof(*h->parts));
        h->parts[h->n_parts] =
            (struct hist_part){.topic = topic, .number = part, .final_start = -1, .final_end = -1};
        t->parts[part] = (int32_t)h->n_parts++;
    }
    return t->parts[part];
}

static bool part_of(struct loading *l, struct line *in, int32_t *ret)
{
    int16_t topic;
    int64_t part;
    if (!topic_of(l, in, &topic) || !number(in, 0, HIST_PARTITIONS_MAX, &part)) {
        return false;
    }
    *ret = part_index(l->h, topic, (int32_t)part);
    return true;
}

/* ---- lines ---- */

static bool header(struct loading *l, struct line *in)
{
    static const char *const names[] = {"idempotent", "ordered", "committed"};
    int64_t n;
    const char *name;
    size_t len;
    if (l->process || !number(in, 1, HIST_PROCESSES - 1, &n) || !word(in, &name, &len) ||
        l->h->processes[n].name) {
        return false; /* two files of one process */
    }
    l->process = &l->h->processes[n];
    l->number = (uint16_t)n;
    l->process->name = kc_strndup(name, len);
    while (in->p < in->end) {
        size_t i = 0;
        if (!word(in, &name, &len)) {
            return false;
        }
        while (i < KC_ARRAY_LEN(names) &&
               (strlen(names[i]) != len || memcmp(names[i], name, len) != 0)) {
            i++;
        }
        if (i == KC_ARRAY_LEN(names)) {
            return false;
        }
        l->process->flags |= 1u << i;
    }
    return true;
}

static bool send_line(struct loading *l, struct line *in)
{
    struct hist_process *p = l->process;
    struct hist_send s = {
        .acked_us = -1, .offset = -1, .key = -1, .txn = -1, .found = -1, .part = -1};
    int64_t part, value;
    if (!time_of(in, &s.invoked_us) || !topic_of(l, in, &s.topic) ||
        !number(in, -1, HIST_PARTITIONS_MAX, &part) || !number(in, 1, INT64_MAX, &value)) {
        return false;
    }
    if ((in->p < in->end && !number(in, -1, INT64_MAX, &s.key)) ||
        (in->p < in->end && !number(in, -1, (int64_t)1 << 30, &s.txn))) {
        return false;
    }
    if (value != (int64_t)((uint64_t)l->number << HIST_SEQUENCE_BITS | p->n_sends)) {
        return false; /* values count a process's sends */
    }
    if (part >= 0) {
        s.part = part_index(l->h, s.topic, (int32_t)part);
    }
    p->sends = hist_grow(p->sends, p->n_sends, &p->room, sizeof(*p->sends));
    p->sends[p->n_sends++] = s;
    return true;
}

/* a, u and f: the outcome of an own send, told once. */
static bool outcome_line(struct loading *l, struct line *in, char kind)
{
    int64_t t, value, part, offset = -1;
    if (!time_of(in, &t) || !number(in, 1, INT64_MAX, &value) ||
        value >> HIST_SEQUENCE_BITS != l->number) {
        return false;
    }
    struct hist_send *s = hist_send_of(l->h, (uint64_t)value);
    if (!s || s->outcome != HIST_OPEN) {
        return false;
    }
    s->outcome = kind == 'a' ? HIST_ACKED : kind == 'u' ? HIST_UNKNOWN : HIST_REFUSED;
    if (kind != 'a') {
        return true;
    }
    if (!number(in, 0, HIST_PARTITIONS_MAX, &part) || !offset_of(in, &offset)) {
        return false;
    }
    int32_t index = part_index(l->h, s->topic, (int32_t)part);
    if (s->part >= 0 && s->part != index) {
        return false; /* the client answered for another partition than it was asked to use */
    }
    s->part = index;
    s->offset = offset;
    s->acked_us = t;
    return true;
}

static bool txn_line(struct loading *l, struct line *in)
{
    static const char *const ends[] = {"open", "committed", "aborted", "unknown"};
    int64_t t, txn;
    const char *how;
    size_t len;
    if (!time_of(in, &t) || !number(in, 0, (int64_t)1 << 24, &txn) || !word(in, &how, &len)) {
        return false;
    }
    struct hist_process *p = l->process;
    if ((size_t)txn >= p->n_txns) {
        size_t n = ((size_t)txn + 1) * 2;
        p->txns = kc_realloc(p->txns, n);
        memset(p->txns + p->n_txns, HIST_TXN_OPEN, n - p->n_txns);
        p->n_txns = n;
    }
    for (uint8_t i = HIST_TXN_COMMITTED; i <= HIST_TXN_UNKNOWN; i++) {
        if (strlen(ends[i]) == len && memcmp(ends[i], how, len) == 0) {
            p->txns[txn] = i;
            return true;
        }
    }
    return false;
}

static void add_poll(struct hist *h, const struct hist_poll *p)
{
    h->polls = hist_grow(h->polls, h->n_polls, &h->room_polls, sizeof(*h->polls));
    h->polls[h->n_polls++] = *p;
}

static bool begin_line(struct loading *l, struct line *in)
{
    struct hist_poll p = {.n = -1, .process = l->number};
    if (!time_of(in, &p.start_us) || !part_of(l, in, &p.part) || !offset_of(in, &p.start)) {
        return false;
    }
    add_poll(l->h, &p);
    return true;
}

static bool poll_line(struct loading *l, struct line *in)
{
    struct hist *h = l->h;
    struct hist_poll p = {.first = h->n_records, .process = l->number};
    if (!time_of(in, &p.start_us) || !time_of(in, &p.end_us) || !part_of(l, in, &p.part)) {
        return false;
    }
    while (in->p < in->end) {
        int64_t offset, value;
        if (!digits(in, ':', &offset) || offset < 0 || offset > HIST_OFFSET_MAX ||
            in->p[-1] != ':' || !number(in, 0, INT64_MAX, &value)) {
            return false;
        }
        h->records = hist_grow(h->records, h->n_records, &h->room_records, sizeof(*h->records));
        h->records[h->n_records++] = (struct hist_record){offset, (uint64_t)value};
        p.n++;
    }
    add_poll(h, &p);
    return true;
}

static bool water_line(struct loading *l, struct line *in)
{
    struct hist *h = l->h;
    struct hist_water w = {.process = l->number};
    int64_t low;
    if (!time_of(in, &w.start_us) || !time_of(in, &w.end_us) || !part_of(l, in, &w.part) ||
        !offset_of(in, &low) || !offset_of(in, &w.high)) {
        return false;
    }
    h->waters = hist_grow(h->waters, h->n_waters, &h->room_waters, sizeof(*h->waters));
    h->waters[h->n_waters++] = w;
    return true;
}

static bool final_line(struct loading *l, struct line *in)
{
    int64_t t, start, end;
    int32_t part;
    if (!time_of(in, &t) || !part_of(l, in, &part) || !offset_of(in, &start) ||
        !offset_of(in, &end) || start < 0 || end < start) {
        return false;
    }
    struct hist_part *p = &l->h->parts[part];
    l->process->final = true;
    p->final_start = KC_MAX(p->final_start, start);
    p->final_end = KC_MAX(p->final_end, end);
    return true;
}

static void add_commit(struct hist *h, const struct hist_commit *c)
{
    h->commits = hist_grow(h->commits, h->n_commits, &h->room_commits, sizeof(*h->commits));
    h->commits[h->n_commits++] = *c;
}

static bool register_of(struct loading *l, struct line *in, struct hist_commit *c)
{
    const char *name;
    size_t len;
    if (!word(in, &name, &len)) {
        return false;
    }
    c->group = (int16_t)intern(l->h->groups, &l->h->n_groups, name, len);
    return c->group >= 0 && part_of(l, in, &c->part) && offset_of(in, &c->offset);
}

/* Whoever is killed in the middle of a commit has said that it began. */
static bool begun_line(struct loading *l, struct line *in)
{
    struct hist_commit c = {
        .process = l->number, .end_us = INT64_MAX, .unknown = true, .open = true};
    if (!time_of(in, &c.start_us) || !register_of(l, in, &c)) {
        return false;
    }
    add_commit(l->h, &c);
    return true;
}

static bool told_line(struct loading *l, struct line *in)
{
    struct hist_commit c = {.process = l->number, .asked = true};
    if (!time_of(in, &c.start_us) || !time_of(in, &c.end_us) || !register_of(l, in, &c)) {
        return false;
    }
    add_commit(l->h, &c);
    return true;
}

static bool commit_line(struct loading *l, struct line *in)
{
    struct hist *h = l->h;
    struct hist_commit c = {.process = l->number};
    const char *how;
    size_t len;
    if (!time_of(in, &c.start_us) || !time_of(in, &c.end_us) || !register_of(l, in, &c) ||
        !word(in, &how, &len)) {
        return false;
    }
    c.unknown = len == 7 && memcmp(how, "unknown", len) == 0;
    if (!c.unknown && (len != 2 || memcmp(how, "ok", len) != 0)) {
        return false;
    }
    /* A commit's lines stand together: the one that began is among the last of this process. */
    for (size_t i = h->n_commits; i > 0 && h->commits[i - 1].process == l->number; i--) {
        struct hist_commit *b = &h->commits[i - 1];
        if (b->open && b->group == c.group && b->part == c.part && b->offset == c.offset) {
            *b = c;
            return true;
        }
        if (!b->open && b->start_us < c.start_us) {
            break;
        }
    }
    add_commit(h, &c);
    return true;
}

static bool load_line(struct loading *l, struct line *in)
{
    if (in->end - in->p < 2 || in->p[1] != ' ') {
        return false;
    }
    char kind = in->p[0];
    in->p += 2;
    if (kind == 'P') {
        return header(l, in);
    }
    if (!l->process) {
        return false;
    }
    switch (kind) {
    case 's':
        return send_line(l, in);
    case 'a':
    case 'u':
    case 'f':
        return outcome_line(l, in, kind);
    case 'x':
        return txn_line(l, in);
    case 'r':
        return begin_line(l, in);
    case 'p':
        return poll_line(l, in);
    case 'w':
        return water_line(l, in);
    case 'e':
        return final_line(l, in);
    case 'b':
        return begun_line(l, in);
    case 'c':
        return commit_line(l, in);
    case 'o':
        return told_line(l, in);
    default:
        return false;
    }
}

int hist_load(struct hist *h, const char *text, size_t len, struct kc_err *err)
{
    struct loading l = {.h = h, .last_topic = -1};
    const char *p = text, *end = text + len;
    for (int64_t n = 1; p < end; n++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl) {
            break; /* cut off */
        }
        struct line in = {p, nl};
        if (!load_line(&l, &in) || in.p != in.end) {
            return kc_fail(err, KC_E_MALFORMED, "line %lld: %.*s", (long long)n,
                           (int)KC_MIN(nl - p, 120), p);
        }
        p = nl + 1;
    }
    return l.process ? 0 : kc_fail(err, KC_E_MALFORMED, "no process named");
}
