/* The end of a log's epoch by its own owner: a planned move, or an owner that a newer claim deposed. */
#include "storage/ks_int.h"

#include <errno.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"

enum { SEAL_RACES = 16 };

static struct ks_rec acked_seal(const struct ks_log *log)
{
    return (struct ks_rec){
        .type = KS_SEAL,
        .k = log->c_next_k,
        .epoch = log->c_epoch,
        .seal = {.end = log->c_end,
                 .file = log->c_file->id,
                 .len = log->c_acked,
                 .crc = log->c_crc},
    };
}

/* A newer claim stands in the chain and we are alive, with no ack to come: our epoch may be sealed by
 * nobody else, who would have to fence us first. At the acked length, wherever the chain ends; the
 * first seal wins. What goes wrong here is the claimant's to do. */
static void seal_deposed(struct ks_log *log)
{
    struct ks_fs *fs = &log->e->fs;
    struct ks_rec r = acked_seal(log);
    struct ks_chain c;
    bool fenced = atomic_load(&log->inc->fenced);
    bool ends =
        log->c_synced >= log->c_acked || (!fenced && !log->c_lies && ks_task_sync_file(log) == 0);
    int rc = fenced || !ends ? KC_E_FENCED : KC_E_EXISTS;
    ks_chain_init(&c);
    for (int race = 0; rc == KC_E_EXISTS && race < SEAL_RACES; race++) {
        rc = ks_chain_load(fs, &log->topic, log->partition, r.k + 1, &c, NULL);
        const struct ks_epoch *e = rc ? NULL : ks_chain_epoch(&c, log->c_epoch);
        if (!e || e->sealed) {
            break;
        }
        r.k = c.next_k;
        rc = ks_chain_append(fs, &log->topic, log->partition, &r, NULL, NULL);
    }
    ks_chain_fini(&c);
    if (!rc && !ks_task_sync_dir(log)) {
        kc_log(KC_INFO, "storage", "event=deposed_owner_sealed epoch=%d end=%lld", log->c_epoch,
               (long long)log->c_end);
    }
}

/* Our own seal: the orderly end of an epoch. */
static int seal(struct ks_log *log, struct ks_entry *entry)
{
    entry->epoch = log->c_epoch; /* a recovery may have come between */
    entry->end = log->c_end;
    if (log->c_failed && log->c_error == KS_K_NOT_LEADER) {
        seal_deposed(log);
        return KC_E_DEPOSED;
    }
    if (atomic_load(&log->inc->fenced)) {
        return KC_E_FENCED;
    }
    entry->record = kc_try_alloc(KS_REC_MAX);
    int rc = entry->record ? 0 : -ENOMEM;
    if (!rc && log->c_synced < log->c_acked && !log->c_lies) {
        rc = ks_task_sync_file(log); /* after an error on the file a second sync would lie */
    }
    if (!rc && log->c_synced < log->c_acked) {
        rc = -EIO; /* not synced where they are: the next claim copies them first */
    }
    struct ks_rec r = acked_seal(log);
    rc = rc ? rc
            : ks_chain_append(&log->e->fs, &log->topic, log->partition, &r, entry->record,
                              &entry->record_len);
    rc = rc ? rc : ks_task_sync_dir(log);
    if (rc) {
        ks_task_log_error(log, "seal_failed", rc);
    }
    if (rc == KC_E_EXISTS) {
        seal_deposed(log);
        return KC_E_DEPOSED;
    }
    return rc;
}

void ks_task_seal(struct ks_log *log, struct ks_entry *entry)
{
    entry->rc = seal(log, entry);
}
