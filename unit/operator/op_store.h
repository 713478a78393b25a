/* op_store.h - a store that counts what is written through it. */
#ifndef OP_STORE_H
#define OP_STORE_H

#include "store/ko_store.h"

struct op_counting {
    struct ko_store port; /* what the reconciler is given */
    struct ko_store_ops ops;
    struct ko_store *under; /* same loop */
    int32_t writes; /* of every kind: creates, updates, applies, patches, removals */
    enum ko_kind last; /* kind of the last one */
};
void op_counting_init(struct op_counting *c, struct ko_store *under);

#endif
