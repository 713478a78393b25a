#include "storage/ks_clean_pick.h"

struct ks_clean_need ks_clean_judge(const struct ks_clean_file *files, uint32_t n,
                                    int64_t dirty_from, int64_t stable,
                                    const struct ks_clean_rules *rules, int64_t now_wall_ms)
{
    struct ks_clean_need need = {.dirty_from = dirty_from, .until = dirty_from};
    int64_t earliest = INT64_MAX;
    bool open = true; /* no file so far that must wait */
    for (uint32_t i = 0; i < n; i++) {
        const struct ks_clean_file *f = &files[i];
        if (f->end <= dirty_from) {
            need.clean_bytes += f->bytes;
            continue;
        }
        /* Too young: it and all that follow wait (min.compaction.lag.ms). */
        bool young = rules->min_lag_ms > 0 && f->max_ts > now_wall_ms - rules->min_lag_ms;
        open = open && f->end <= stable && !young;
        if (f->first_ts > 0 && f->first_ts < earliest) {
            earliest = f->first_ts;
        }
        if (open) {
            need.dirty_bytes += f->bytes;
            need.until = f->end;
        }
    }
    uint64_t all = need.clean_bytes + need.dirty_bytes;
    need.ratio = all ? (double)need.dirty_bytes / (double)all : 0;
    need.overdue = earliest < INT64_MAX && now_wall_ms > rules->max_lag_ms &&
                   earliest < now_wall_ms - rules->max_lag_ms;
    return need;
}

bool ks_clean_due(const struct ks_clean_need *need, const struct ks_clean_rules *rules)
{
    return need->dirty_bytes > 0 && (need->overdue || need->ratio > rules->min_dirty_ratio);
}

bool ks_clean_before(const struct ks_clean_need *a, const struct ks_clean_need *b)
{
    return a->ratio > b->ratio;
}
