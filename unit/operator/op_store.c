#include "op_store.h"

static struct ko_store *passed(struct ko_store *s)
{
    return KC_CONTAINER_OF(s, struct op_counting, port)->under;
}

static struct ko_store *counted(struct ko_store *s, enum ko_kind k)
{
    struct op_counting *c = KC_CONTAINER_OF(s, struct op_counting, port);
    c->writes++;
    c->last = k;
    return c->under;
}

static void c_get(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                  ko_done done, void *ctx)
{
    struct ko_store *u = passed(s);
    u->ops->get(u, k, ns, name, done, ctx);
}

static void c_list(struct ko_store *s, enum ko_kind k, const char *ns, const char *selector,
                   ko_done done, void *ctx)
{
    struct ko_store *u = passed(s);
    u->ops->list(u, k, ns, selector, done, ctx);
}

static struct ko_watch *c_watch(struct ko_store *s, enum ko_kind k, const char *ns,
                                const char *selector, ko_watch_fn fn, void *ctx)
{
    struct ko_store *u = passed(s);
    return u->ops->watch(u, k, ns, selector, fn, ctx);
}

static void c_create(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx)
{
    struct ko_store *u = counted(s, k);
    u->ops->create(u, k, doc, done, ctx);
}

static void c_update(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx)
{
    struct ko_store *u = counted(s, k);
    u->ops->update(u, k, doc, done, ctx);
}

static void c_apply(struct ko_store *s, enum ko_kind k, json_t *doc, const char *manager,
                    ko_done done, void *ctx)
{
    struct ko_store *u = counted(s, k);
    u->ops->apply(u, k, doc, manager, done, ctx);
}

static void c_apply_status(struct ko_store *s, enum ko_kind k, json_t *doc, ko_done done, void *ctx)
{
    struct ko_store *u = counted(s, k);
    u->ops->apply_status(u, k, doc, done, ctx);
}

static void c_merge(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                    json_t *patch, ko_done done, void *ctx)
{
    struct ko_store *u = counted(s, k);
    u->ops->merge(u, k, ns, name, patch, done, ctx);
}

static void c_remove(struct ko_store *s, enum ko_kind k, const char *ns, const char *name,
                     const char *uid, ko_done done, void *ctx)
{
    struct ko_store *u = counted(s, k);
    u->ops->remove(u, k, ns, name, uid, done, ctx);
}

void op_counting_init(struct op_counting *c, struct ko_store *under)
{
    c->ops = (struct ko_store_ops){.get = c_get,
                                   .list = c_list,
                                   .create = c_create,
                                   .update = c_update,
                                   .apply = c_apply,
                                   .apply_status = c_apply_status,
                                   .merge = c_merge,
                                   .remove = c_remove,
                                   .watch = c_watch,
                                   .unwatch = under->ops->unwatch,
                                   .free = under->ops->free};
    c->port = (struct ko_store){.ops = &c->ops, .loop = under->loop};
    c->under = under;
    c->writes = 0;
}
