/* Entries of the commit queue. Those of appends are kept for the next ones, by the shard of the loop that owns
 * them from their making to their answer. */
#include "storage/ks_int.h"

#include "base/kc_mem.h"

enum { SPARE_ENTRIES = 256 };

static void fill(struct ks_entry *entry, struct ks_log *log, enum ks_entry_kind kind)
{
    entry->log = ks_log_ref(log);
    entry->kind = kind;
    entry->epoch = kind == KS_E_SYNCED ? -1 : log->epoch; /* of no epoch, and not by its owner */
    entry->duplicate_base = -1;
}

struct ks_entry *ks_entry_new(struct ks_log *log, enum ks_entry_kind kind)
{
    struct ks_entry *entry = kc_zalloc(sizeof(*entry));
    fill(entry, log, kind);
    return entry;
}

struct ks_entry *ks_entry_append(struct ks_log *log)
{
    struct ks_shard *s = log->shard;
    struct ks_entry *entry = s->spare;
    if (entry) {
        s->spare = entry->next;
        s->n_spare--;
        *entry = (struct ks_entry){0};
    } else {
        /* Letting go and recovering must not fail for want of a few bytes; clients' appends may. */
        entry = kc_try_zalloc(1, sizeof(*entry));
    }
    if (entry) {
        fill(entry, log, KS_E_APPEND);
    }
    return entry;
}

static void empty(struct ks_entry *entry)
{
    kc_buf_unref(entry->data.buf);
    ks_file_unref(entry->file);
    kc_free(entry->record);
    kc_free(entry->trim);
    if (entry->takeover) {
        ks_takeover_fini(entry->takeover);
        kc_free(entry->takeover);
    }
}

void ks_entry_free(struct ks_entry *entry)
{
    empty(entry);
    ks_log_unref(entry->log);
    kc_free(entry);
}

void ks_entry_spare(struct ks_entry *entry)
{
    struct ks_log *log = entry->log;
    struct ks_shard *s = log->shard;
    if (!s || s->n_spare == SPARE_ENTRIES) {
        ks_entry_free(entry);
        return;
    }
    empty(entry);
    entry->next = s->spare;
    s->spare = entry;
    s->n_spare++;
    ks_log_unref(log); /* maybe the last one, and the shard goes with it */
}
