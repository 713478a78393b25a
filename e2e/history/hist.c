/* The history's life, its findings and the report. */
#include "history/hist.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_mem.h"

struct hist *hist_new(void)
{
    struct hist *h = kc_zalloc(sizeof(*h));
    h->processes = kc_zalloc(HIST_PROCESSES * sizeof(*h->processes));
    h->stale_us = 1000000; /* coordinators and reads need a fence check of at most a second */
    return h;
}

void hist_free(struct hist *h)
{
    if (!h) {
        return;
    }
    for (size_t i = 0; i < HIST_PROCESSES; i++) {
        kc_free(h->processes[i].name);
        kc_free(h->processes[i].sends);
        kc_free(h->processes[i].txns);
    }
    for (int32_t i = 0; i < h->n_topics; i++) {
        kc_free(h->topics[i].name);
        kc_free(h->topics[i].parts);
    }
    for (int32_t i = 0; i < h->n_groups; i++) {
        kc_free(h->groups[i]);
    }
    for (size_t i = 0; i < h->n_parts; i++) {
        kc_free(h->parts[i].values);
        kc_free(h->parts[i].marks);
    }
    for (int c = 0; c < HIST_CLASSES; c++) {
        for (int i = 0; i < HIST_FIRST; i++) {
            kc_free(h->first[c][i]);
        }
    }
    kc_free(h->processes);
    kc_free(h->parts);
    kc_free(h->polls);
    kc_free(h->records);
    kc_free(h->waters);
    kc_free(h->commits);
    kc_free(h);
}

const struct hist_process *hist_sender(const struct hist *h, uint64_t value)
{
    return &h->processes[value >> HIST_SEQUENCE_BITS];
}

struct hist_send *hist_send_of(const struct hist *h, uint64_t value)
{
    uint64_t number = value >> HIST_SEQUENCE_BITS;
    uint64_t sequence = value & (((uint64_t)1 << HIST_SEQUENCE_BITS) - 1);
    if (number >= HIST_PROCESSES || sequence >= h->processes[number].n_sends) {
        return NULL;
    }
    return &h->processes[number].sends[sequence];
}

void hist_check(struct hist *h)
{
    hist_check_log(h);
    hist_check_time(h);
    hist_check_polls(h);
    hist_check_groups(h);
}

/* ---- findings ---- */

const char *hist_class_name(enum hist_class c)
{
    static const char *const names[HIST_CLASSES] = {
        [HIST_COLLISION] = "collision",   [HIST_DUPLICATE] = "duplicate",
        [HIST_REORDERED] = "reordered",   [HIST_LOST] = "lost",
        [HIST_UNSENT] = "unsent",         [HIST_ABORTED] = "aborted",
        [HIST_ACK_ORDER] = "ack-order",   [HIST_REAL_TIME] = "real-time",
        [HIST_POLL_ORDER] = "poll-order", [HIST_POLL_SKIP] = "poll-skip",
        [HIST_STALE] = "stale",           [HIST_OFFSET_BACK] = "offset-back"};
    return names[c];
}

uint64_t hist_violations(const struct hist *h)
{
    uint64_t n = 0;
    for (int c = 0; c < HIST_CLASSES; c++) {
        n += h->found[c];
    }
    return n;
}

void hist_found(struct hist *h, enum hist_class c, int32_t part, const char *fmt, ...)
{
    uint64_t n = h->found[c]++;
    if (n >= HIST_FIRST) {
        return;
    }
    char text[512];
    int len =
        part < 0 ? 0
                 : snprintf(text, sizeof(text), "%.250s/%d: ", h->topics[h->parts[part].topic].name,
                            h->parts[part].number);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + len, sizeof(text) - (size_t)len, fmt, ap);
    va_end(ap);
    h->first[c][n] = kc_strdup(text);
}

/* ---- the report ---- */

struct figures {
    uint64_t sent, acked, unknown, refused, open;
    int64_t *latencies; /* of acknowledged sends, us */
    int64_t gap_us; /* longest time a partition went without an acknowledgement */
    int32_t gap_part;
    double gap_at_s;
};

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

struct moment {
    int64_t us;
    int32_t part;
};

static int by_moment(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;
    return x->us < y->us ? -1 : x->us > y->us;
}

static void longest_gap(const struct hist *h, struct figures *f, struct moment *acks)
{
    if (f->acked == 0) {
        return;
    }
    qsort(acks, f->acked, sizeof(*acks), by_moment);
    int64_t *last = kc_zalloc((h->n_parts + 1) * sizeof(*last));
    for (uint64_t i = 0; i < f->acked; i++) {
        int64_t *l = &last[acks[i].part];
        if (*l && acks[i].us - *l > f->gap_us) {
            f->gap_us = acks[i].us - *l;
            f->gap_part = acks[i].part;
            f->gap_at_s = (double)(*l - acks[0].us) / 1e6;
        }
        *l = acks[i].us;
    }
    kc_free(last);
}

static void collect(const struct hist *h, struct figures *f)
{
    *f = (struct figures){.gap_part = -1};
    for (uint32_t n = 1; n < HIST_PROCESSES; n++) {
        f->sent += h->processes[n].n_sends;
    }
    f->latencies = kc_alloc((f->sent + 1) * sizeof(*f->latencies));
    struct moment *acks = kc_alloc((f->sent + 1) * sizeof(*acks));
    for (uint32_t n = 1; n < HIST_PROCESSES; n++) {
        const struct hist_process *p = &h->processes[n];
        for (size_t i = 0; i < p->n_sends; i++) {
            const struct hist_send *s = &p->sends[i];
            f->unknown += s->outcome == HIST_UNKNOWN;
            f->refused += s->outcome == HIST_REFUSED;
            f->open += s->outcome == HIST_OPEN;
            if (s->outcome == HIST_ACKED) {
                acks[f->acked] = (struct moment){s->acked_us, s->part};
                f->latencies[f->acked++] = s->acked_us - s->invoked_us;
            }
        }
    }
    qsort(f->latencies, f->acked, sizeof(*f->latencies), by_value);
    longest_gap(h, f, acks);
    kc_free(acks);
}

static double quantile_ms(const struct figures *f, double q)
{
    return f->acked ? (double)f->latencies[(uint64_t)(q * (double)(f->acked - 1))] / 1e3 : 0;
}

static void text(FILE *out, const char *s)
{
    fputc('"', out);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') {
            fputc('\\', out);
        }
        fputc((unsigned char)*s < ' ' ? ' ' : *s, out);
    }
    fputc('"', out);
}

static void report_findings(const struct hist *h, FILE *out)
{
    const char *comma = "";
    fprintf(out, "\"violations\": {");
    for (int c = 0; c < HIST_CLASSES; c++) {
        if (h->found[c]) {
            fprintf(out, "%s\"%s\": %" PRIu64, comma, hist_class_name((enum hist_class)c),
                    h->found[c]);
            comma = ", ";
        }
    }
    comma = "";
    fprintf(out, "}, \"first\": [");
    for (int c = 0; c < HIST_CLASSES; c++) {
        for (uint64_t i = 0; i < KC_MIN(h->found[c], (uint64_t)HIST_FIRST); i++) {
            char line[600];
            snprintf(line, sizeof(line), "%s: %s", hist_class_name((enum hist_class)c),
                     h->first[c][i]);
            fputs(comma, out);
            text(out, line);
            comma = ", ";
        }
    }
    fprintf(out, "]");
}

void hist_report(const struct hist *h, FILE *out)
{
    struct figures f;
    collect(h, &f);
    fprintf(out,
            "{\"sent\": %" PRIu64 ", \"acked\": %" PRIu64 ", \"unknown\": %" PRIu64
            ", \"refused\": %" PRIu64 ", \"unanswered\": %" PRIu64 ", \"read\": %zu"
            ", \"commits\": %zu, \"watermarks\": %zu, \"partitions\": %zu, \"plainDuplicates\": "
            "%" PRIu64,
            f.sent, f.acked, f.unknown, f.refused, f.open, h->n_records, h->n_commits, h->n_waters,
            h->n_parts, h->plain_duplicates);
    fprintf(out, ", \"ackMs\": {\"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}",
            quantile_ms(&f, 0.5), quantile_ms(&f, 0.99), quantile_ms(&f, 0.999),
            quantile_ms(&f, 1));
    if (f.gap_part >= 0) {
        const struct hist_part *p = &h->parts[f.gap_part];
        fprintf(out, ", \"longestGapS\": %.2f, \"gapAtS\": %.1f, \"gapPartition\": \"%s/%d\"",
                (double)f.gap_us / 1e6, f.gap_at_s, h->topics[p->topic].name, p->number);
    }
    fprintf(out, ", ");
    report_findings(h, out);
    fprintf(out, "}\n");
    kc_free(f.latencies);
}
