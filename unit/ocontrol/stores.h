/* stores.h - stores that misbehave on order, and one store seen from two loops. */
#ifndef STORES_H
#define STORES_H

#include <stdatomic.h>

#include "store/ko_store.h"

/* Passes calls on to `under` (same loop), but for the next ones as ordered. */
struct flaky {
    struct ko_store port;
    struct ko_store *under;
    _Atomic int refuse; /* so many writes are answered 500 and not made */
    _Atomic int lose; /* so many writes are made, and their answer is lost (code 0) */
    _Atomic int writes; /* seen so far */
};
void flaky_init(struct flaky *f, struct ko_store *under);

/* `under`, which lives on api, for a caller on another loop. cut: calls are answered code 0. */
struct proxy;
struct ko_store *proxy_new(struct rt_loop *loop, struct rt_loop *api, struct ko_store *under,
                           _Atomic bool *cut);

#endif
