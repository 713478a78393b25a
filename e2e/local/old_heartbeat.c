/* old_heartbeat.c - the broker of an older image, as the operator hears it. Linked into kaas-broker-hb0 and
 * kaas-broker-hb1 only (--wrap=hb_encode_broker), to roll from and to them (R52, W5).
 *
 * KAAS_OLD_HEARTBEAT=1: one protocol version behind. It says healthy, but no protocol_version, and not whether it serves.
 * KAAS_OLD_HEARTBEAT=0: older still. It never sends field 6, healthy, either. */
#include "hb/hb_frame.h"

int __real_hb_encode_broker(const Kaas__Heartbeat__BrokerMessage *msg, struct kc_dyn *out);
int __wrap_hb_encode_broker(const Kaas__Heartbeat__BrokerMessage *msg, struct kc_dyn *out);

/* proto3 leaves out a field that has its default: what is cleared is not sent. */
static void forget(Kaas__Heartbeat__BrokerStatus *s)
{
    s->protocol_version = 0;
    s->serving = false;
    s->stall_reason = NULL;
    s->storage_stalled = false;
    s->volume = 0;
    if (KAAS_OLD_HEARTBEAT == 0) {
        s->healthy = false;
    }
}

int __wrap_hb_encode_broker(const Kaas__Heartbeat__BrokerMessage *msg, struct kc_dyn *out)
{
    Kaas__Heartbeat__BrokerMessage m = *msg;
    Kaas__Heartbeat__Hello hello;
    Kaas__Heartbeat__BrokerStatus status;
    if (m.kind_case == KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO) {
        hello = *m.hello;
        hello.protocol_version = HB_PROTOCOL_VERSION - 1;
        m.hello = &hello;
    } else if (m.kind_case == KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_STATUS) {
        status = *m.status;
        forget(&status);
        m.status = &status;
    }
    return __real_hb_encode_broker(&m, out);
}
