/* ks_wire.h - the codes of Kafka's protocol that the log answers with.
 *
 * The log does not depend on the wire codec; these are the only numbers both know. */
#ifndef KS_WIRE_H
#define KS_WIRE_H

enum {
    KS_K_NONE = 0,
    KS_K_OFFSET_OUT_OF_RANGE = 1,
    KS_K_CORRUPT_MESSAGE = 2,
    KS_K_NOT_LEADER = 6,
    KS_K_MESSAGE_TOO_LARGE = 10,
    KS_K_RECORD_LIST_TOO_LARGE = 18,
    KS_K_INVALID_TIMESTAMP = 32,
    KS_K_POLICY_VIOLATION = 44,
    KS_K_OUT_OF_ORDER_SEQUENCE = 45,
    KS_K_INVALID_PRODUCER_EPOCH = 47,
    KS_K_INVALID_TXN_STATE = 48,
    KS_K_STORAGE_ERROR = 56,
    KS_K_INVALID_RECORD = 87
};

#endif
