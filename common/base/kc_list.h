/* kc_list.h - intrusive doubly linked list. One owner thread. */
#ifndef KC_LIST_H
#define KC_LIST_H

#include "base/kc_base.h"

struct kc_list {
    struct kc_list *prev, *next; /* a head points at itself when empty */
};

static inline void kc_list_init(struct kc_list *head)
{
    head->prev = head->next = head;
}
static inline bool kc_list_empty(const struct kc_list *head)
{
    return head->next == head;
}
static inline void kc_list_add_tail(struct kc_list *head, struct kc_list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}
/* The node may be removed again (it then points at itself). */
static inline void kc_list_del(struct kc_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    kc_list_init(node);
}
#define KC_LIST_ENTRY(node, type, member) KC_CONTAINER_OF(node, type, member)
/* Safe against removal of `it`; `nx` is scratch. */
#define KC_LIST_EACH(it, nx, head)                                                                 \
    for (struct kc_list *it = (head)->next, *nx = it->next; it != (head); it = nx, nx = it->next)

#endif
