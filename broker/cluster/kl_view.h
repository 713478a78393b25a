/* kl_view.h - the image as this broker sees it: the document, with what the operator pushed. Pure.
 *
 * Heartbeat answers carry broker rows and new leaders ahead of the document, so that all brokers agree
 * within a second (design.md, 4; ADR 19). A pushed row stands until a document that is surely newer has
 * been applied; a leader until the document's own epoch is as high: epochs are the volume's.
 * Documents never go back in order; a new uid replaces. Owner: control loop. */
#ifndef KL_VIEW_H
#define KL_VIEW_H

#include "heartbeat.pb-c.h"
#include "image/ki_image.h"

struct kl_pushed {
    int32_t broker;
    bool gone;
    struct kp_order order;
    struct kp_row row; /* complete: laid over what was known when it came */
};

enum { KL_LEADS_MAX = 8192 }; /* what is over is heard from the next document */

struct kl_view {
    struct ki_image *document; /* as read; NULL = none yet */
    struct ki_image *merged; /* document, rows replaced; the same object if nothing was pushed */
    bool fresh; /* the document was read from where it is kept, not from a copy */
    bool answered; /* its order was repeated by the active operator */
    uint64_t term; /* the highest any active operator has shown */
    bool due_unknown; /* the active operator is yet to say what it has published */
    struct kp_order due; /* what it had, when this incarnation came to it */
    int32_t n_pushed;
    struct kl_pushed pushed[KP_BROKERS_MAX];
    int32_t n_leads;
    struct kp_lead leads[KL_LEADS_MAX]; /* newer than the document's, sorted as in an image */
};

void kl_view_fini(struct kl_view *v);
/* Takes the reference. True: merged or its standing changed. */
bool kl_view_document(struct kl_view *v, struct ki_image *im, bool fresh);
/* The active operator's newest published order. True: the document has just been confirmed. */
bool kl_view_answer(struct kl_view *v, const struct kp_order *order);
/* Is this answer from an operator that has not been superseded? */
bool kl_view_current_term(const struct kl_view *v, uint64_t term);
/* Rows and deregistrations of an answer. True: merged changed. */
bool kl_view_push(struct kl_view *v, const Kaas__Heartbeat__StatusAnswer *a,
                  const struct kp_order *order);
/* Leaders of an answer, newer than the document. True: merged changed, in its leads alone. */
bool kl_view_leads(struct kl_view *v, const Kaas__Heartbeat__StatusAnswer *a,
                   const struct kp_order *order);
bool kl_view_confirmed(const struct kl_view *v);
/* Another incarnation begins: it may come from a time away, with a document of that time, which says
 * nothing of what happened meanwhile although rows that are pushed name the incarnation as alive. */
void kl_view_begin(struct kl_view *v);
/* Whether the document is not older than what the active operator had published when it first answered
 * since then: who serves by an older one sends its clients to where the leaders were (R38). */
bool kl_view_caught_up(const struct kl_view *v);

#endif
