/* kb_api.h - the table made of api.def, and the way of a frame to its handler. */
#ifndef KB_API_H
#define KB_API_H

#include "app/kb_req.h"
#include "net/kn_net.h"
#include "wire/kw_api.h"

struct kb_api {
    int16_t key;
    const char *name;
    int16_t advertised_min, min, max;
    kb_handler handle;
};

const struct kb_api *kb_api_find(int16_t key); /* NULL: not served */
const struct kb_api *kb_apis(size_t *ret_n); /* by rising key */

#define API(key, name, advertised, min, max) void kb_handle_##name(struct kb_req *req);
#include "handlers/api.def"
#undef API

/* The two callbacks of kn_handler; ctx is the kb_app. */
void kb_on_frame(void *ctx, struct kn_conn *c, struct kn_place place, struct kc_slice frame);
bool kb_frame_overlaps(const uint8_t *frame, size_t len);

/* Sends the answer and keeps the request, for work that goes on after a timeout was answered; kb_end
 * lets go of it. Each once, on any loop, instead of kb_reply. */
void kb_send(struct kb_req *req, const void *response);
void kb_end(struct kb_req *req);
/* Counts memory that the request holds besides its frame against the budget of the connections, until it
 * is answered. On the home loop. */
void kb_charge(struct kb_req *req, size_t bytes);

#endif
