/* ks_sound.h - which bytes of a data file this process has seen to be right since it opened the log:
 * those that it wrote itself, and those whose batches' checksums a reader has verified. Only these are
 * sent without being looked at (ADR 21). Pure.
 *
 * A few ranges a file: they grow and meet as readers go on. When there are too many, the smallest is
 * forgotten, and verified again when it is read again. */
#ifndef KS_SOUND_H
#define KS_SOUND_H

#include "base/kc_base.h"

enum { KS_SOUND_SPANS = 4 };

struct ks_sound {
    uint32_t n;
    struct {
        uint64_t from, to;
    } v[KS_SOUND_SPANS]; /* not empty, by position, with gaps between them */
};

void ks_sound_add(struct ks_sound *s, uint64_t from, uint64_t to);
/* How far all is sound from `from` on; `from` itself if that is not. */
uint64_t ks_sound_to(const struct ks_sound *s, uint64_t from);

#endif
