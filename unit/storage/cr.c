#include "cr.h"

#include <stdlib.h>

#include "base/kc_hash.h"

enum { SECTOR = 512, ALL_UP_TO = 7 };

void cr_trace_take(struct cr_trace *t, struct st_mem *m, size_t settled)
{
    size_t n;
    const struct st_mem_rec *v = st_mem_records(m, &n);
    *t = (struct cr_trace){
        .v = calloc(n + 1, sizeof(*v)), .n = n, .settled = settled, .from = settled};
    KT_REQUIRE(t->v != NULL);
    if (n) {
        memcpy(t->v, v, n * sizeof(*v));
    }
}

void cr_trace_join(struct cr_trace *t, const struct cr_trace *first, size_t at, struct st_mem *m)
{
    size_t n;
    const struct st_mem_rec *v = st_mem_records(m, &n);
    *t = (struct cr_trace){
        .v = calloc(at + n + 1, sizeof(*v)), .n = at + n, .settled = first->settled, .from = at};
    KT_REQUIRE(t->v != NULL);
    memcpy(t->v, first->v, at * sizeof(*v));
    if (n) {
        memcpy(t->v + at, v, n * sizeof(*v));
    }
}

void cr_trace_free(struct cr_trace *t)
{
    free(t->v);
}

/* ---- what is volatile ---- */

static bool in_dir(const char *dir, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    return slash ? strlen(dir) == n && strncmp(dir, path, n) == 0 : strcmp(dir, ".") == 0;
}

static bool settles(const struct st_mem_rec *r, const struct st_mem_rec *later, enum cr_model model)
{
    switch (r->op) {
    case SM_WRITE:
        return later->op == SM_SYNC && later->ino == r->ino &&
               (model != CR_NETWORK || later->port == r->port);
    case SM_EXTEND:
        return later->op == SM_SYNC && later->ino == r->ino;
    case SM_RENAME:
        return later->op == SM_SYNCDIR && in_dir(later->path, r->to);
    default:
        return later->op == SM_SYNCDIR && in_dir(later->path, r->path);
    }
}

static bool makes_name(const struct st_mem_rec *r)
{
    return r->op == SM_CREATE || r->op == SM_MKDIR || r->op == SM_LINK || r->op == SM_RENAME;
}

static bool is_settled(const struct cr_trace *t, enum cr_model model, size_t i, size_t at)
{
    for (size_t k = i + 1; k < at; k++) {
        if (settles(&t->v[i], &t->v[k], model)) {
            return true;
        }
    }
    return false;
}

/* Names made before it are as durable as the last one that is. */
static size_t settled_names(const struct cr_trace *t, enum cr_model model, size_t at)
{
    size_t i = model == CR_JOURNALED ? at : 0;
    while (i > t->settled && !(makes_name(&t->v[i - 1]) && is_settled(t, model, i - 1, at))) {
        i--;
    }
    return i;
}

static bool is_volatile(const struct cr_trace *t, enum cr_model model, size_t i, size_t at)
{
    const struct st_mem_rec *r = &t->v[i];
    bool fact = r->op == SM_SYNC || r->op == SM_SYNCDIR || r->op == SM_MARK;
    if (fact || i < t->settled || (model == CR_NETWORK && r->op != SM_WRITE)) {
        return false;
    }
    return !is_settled(t, model, i, at);
}

static void add_piece(struct cr_state *c, size_t rec, uint64_t from, uint64_t to, bool zeros)
{
    KT_REQUIRE(c->n_pieces < CR_PIECES);
    c->pieces[c->n_pieces++] =
        (struct cr_piece){.rec = rec, .from = from, .to = to, .zeros = zeros};
}

void cr_pieces(struct cr_state *c, const struct cr_trace *t, enum cr_model model, size_t at)
{
    c->trace = t;
    c->model = model;
    c->at = at;
    c->n_pieces = 0;
    size_t names = settled_names(t, model, at);
    for (size_t i = t->settled; i < at; i++) {
        const struct st_mem_rec *r = &t->v[i];
        if ((i < names && makes_name(r)) || !is_volatile(t, model, i, at)) {
            continue;
        }
        if (r->op != SM_WRITE) {
            add_piece(c, i, 0, 0, false);
            continue;
        }
        uint64_t end = r->pos + r->len;
        for (uint64_t pos = r->pos; pos < end;) {
            uint64_t next = KC_MIN(end, (pos / SECTOR + 1) * SECTOR);
            add_piece(c, i, pos, next, false);
            pos = next;
        }
        add_piece(c, i, 0, 0, true);
    }
}

/* ---- which states ---- */

uint32_t cr_count(const struct cr_state *c, uint32_t samples)
{
    if (c->n_pieces <= ALL_UP_TO) {
        return 1u << c->n_pieces;
    }
    return 2 + 2 * (uint32_t)c->n_pieces + samples;
}

/* Which names are lost is a matter of where the journal ends: before the first one lost, or (any) before
 * one by chance, for subsets of many names hardly keep any. */
static void keep_order(struct cr_state *c, bool any, uint64_t chance)
{
    int names = 0, seen = 0;
    for (int p = 0; p < c->n_pieces; p++) {
        names += makes_name(&c->trace->v[c->pieces[p].rec]);
    }
    int end = any ? (int)(chance % (uint64_t)(names + 1)) : names;
    for (int p = 0; p < c->n_pieces; p++) {
        if (makes_name(&c->trace->v[c->pieces[p].rec])) {
            c->kept[p] = seen < end && (any || c->kept[p]);
            end = c->kept[p] ? end : seen;
            seen++;
        }
    }
}

void cr_choose(struct cr_state *c, uint32_t i, uint64_t seed)
{
    int n = c->n_pieces;
    for (int p = 0; p < n; p++) {
        if (n <= ALL_UP_TO) {
            c->kept[p] = i >> p & 1;
        } else if (i < 2) {
            c->kept[p] = i;
        } else if (i < 2 + (uint32_t)n) {
            c->kept[p] = (uint32_t)p != i - 2;
        } else if (i < 2 + 2 * (uint32_t)n) {
            c->kept[p] = (uint32_t)p == i - 2 - (uint32_t)n;
        } else {
            c->kept[p] = kc_hash64_mix(seed + i, (uint64_t)p) & 1;
        }
    }
    if (c->model == CR_JOURNALED) {
        keep_order(c, n > ALL_UP_TO && i >= 2 + 2 * (uint32_t)n, kc_hash64_mix(seed, i));
    }
}

/* The pieces of one write that were kept. */
static void redo_parts(const struct cr_state *c, struct st_mem *m, int *piece)
{
    size_t rec = c->pieces[*piece].rec;
    const struct st_mem_rec *r = &c->trace->v[rec];
    for (; *piece < c->n_pieces && c->pieces[*piece].rec == rec; (*piece)++) {
        const struct cr_piece *p = &c->pieces[*piece];
        if (!c->kept[*piece]) {
            continue;
        }
        struct st_mem_rec part = *r;
        if (p->zeros) {
            part.op = SM_EXTEND;
            part.pos = r->pos + r->len;
        } else {
            part.pos = p->from;
            part.len = (size_t)(p->to - p->from);
            part.data = r->data + (p->from - r->pos);
        }
        st_mem_redo(m, &part);
    }
}

void cr_build(const struct cr_state *c, struct st_mem *m, const char *keep)
{
    int piece = 0;
    st_mem_clear(m, keep);
    st_mem_redo_start(m);
    for (size_t i = 0; i < c->at; i++) {
        bool may_go = piece < c->n_pieces && c->pieces[piece].rec == i;
        if (may_go && c->trace->v[i].op == SM_WRITE) {
            redo_parts(c, m, &piece);
        } else if (!may_go || c->kept[piece++]) {
            st_mem_redo(m, &c->trace->v[i]);
        }
    }
    st_mem_redo_start(m);
}

/* ---- mutants ---- */

/* The path a file got first. */
static const char *path_of(const struct cr_trace *t, uint32_t ino)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->v[i].op == SM_CREATE && t->v[i].ino == ino) {
            return t->v[i].path;
        }
    }
    return "";
}

static bool of_log(const struct cr_trace *t, const struct st_mem_rec *r)
{
    return st_ends_with(path_of(t, r->ino), ".log");
}

/* The link of a record that drops files. */
static bool of_drop(const struct cr_trace *t, const struct st_mem_rec *r)
{
    if (r->op != SM_LINK || !strstr(r->path, "/ctl.")) {
        return false;
    }
    struct ks_rec rec;
    bool drop = false;
    for (size_t i = 0; i < t->n; i++) {
        const struct st_mem_rec *w = &t->v[i];
        if (w->op == SM_WRITE && w->ino == r->ino && ks_rec_decode(w->data, w->len, &rec) == 0) {
            drop = rec.type == KS_TRIM || rec.type == KS_COMPACT;
            ks_rec_fini(&rec);
        }
    }
    return drop;
}

static bool of_answers(const struct st_mem_rec *r)
{
    return strncmp(r->path, "topics/", 7) == 0 || strcmp(r->path, "pids") == 0;
}

/* Moves record i to an earlier place. */
static void move_up(struct cr_trace *t, size_t i, size_t to)
{
    struct st_mem_rec r = t->v[i];
    memmove(&t->v[to + 1], &t->v[to], (i - to) * sizeof(r));
    t->v[to] = r;
}

static bool comes_later(const struct cr_trace *t, const struct st_mem_rec *r, enum cr_mutant mutant)
{
    switch (mutant) {
    case CR_ACK_BEFORE_SYNC:
        return r->op == SM_SYNC && of_log(t, r);
    case CR_NO_RECORD_SYNC:
        return r->op == SM_SYNC && strstr(path_of(t, r->ino), "/tmp.") != NULL;
    case CR_ACK_BEFORE_JOURNAL:
        return r->op == SM_SYNC && strncmp(path_of(t, r->ino), "inc/", 4) == 0 &&
               strstr(path_of(t, r->ino), ".j") != NULL;
    case CR_NO_DIR_SYNC:
        return r->op == SM_SYNCDIR && of_answers(r);
    default:
        return false;
    }
}

void cr_mutate(struct cr_trace *t, enum cr_mutant mutant)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (i < t->settled || !comes_later(t, &t->v[i], mutant)) {
            t->v[n++] = t->v[i];
        }
    }
    t->n = n; /* too late is as good as never: the crash comes before */
    for (size_t i = t->settled; mutant == CR_UNLINK_FIRST && i < t->n; i++) {
        if (t->v[i].op == SM_UNLINK && st_ends_with(t->v[i].path, ".log")) {
            size_t to = i;
            while (to > t->settled && !of_drop(t, &t->v[to])) {
                to--;
            }
            move_up(t, i, to);
        }
    }
}

void cr_print(const struct cr_state *c, FILE *out)
{
    static const char *const ops[] = {"create",  "mkdir", "write",  "extend", "sync",
                                      "syncdir", "link",  "unlink", "rename", "answer"};
    int piece = 0;
    for (size_t i = c->trace->settled; i < c->at; i++) {
        const struct st_mem_rec *r = &c->trace->v[i];
        const char *path = *r->path ? r->path : path_of(c->trace, r->ino);
        fprintf(out, "    %3zu broker %d %-7s %s %llu+%zu", i, r->port, ops[r->op], path,
                (unsigned long long)r->pos, r->len);
        while (piece < c->n_pieces && c->pieces[piece].rec == i) {
            fputs(c->kept[piece++] ? " kept" : " LOST", out);
        }
        fputc('\n', out);
    }
}
