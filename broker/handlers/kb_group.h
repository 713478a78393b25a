/* kb_group.h - what the handlers of the group APIs share. */
#ifndef KB_GROUP_H
#define KB_GROUP_H

#include "groups/kg_groups.h"
#include "handlers/kb_context.h"

/* Continues with fn(req) on the loop of the group's slot. Where nobody knows of slots yet it goes on
 * here, and the coordinator says NOT_COORDINATOR. */
void kb_group_run(struct kb_req *req, struct kc_str group, void (*fn)(struct kb_req *));

/* The same for one item of a request about many groups: true if this is the group's loop; else
 * fn(req) will run there, to ask again. */
bool kb_group_here(struct kb_req *req, struct kc_str group, void (*fn)(struct kb_req *));

/* Copies into the request's memory, for answers that are written on another loop; null (for which
 * the request was dropped) only on failure. */
bool kb_copy_str(struct kb_req *req, struct kc_str from, struct kc_str *ret);
bool kb_copy_bytes(struct kb_req *req, struct kc_bytes from, struct kc_bytes *ret);

static inline struct kc_str kb_or_empty(struct kc_str s)
{
    return s.ptr ? s : (struct kc_str){"", 0};
}

/* The coordinator's settings that are in force at start; im may be NULL: those of this broker's file. */
struct kg_config kb_group_config(const struct kb_app *app);

#endif
