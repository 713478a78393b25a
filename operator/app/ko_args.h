/* ko_args.h - the command line. Internal to operator/app. */
#ifndef KO_ARGS_H
#define KO_ARGS_H

#include "base/kc_error.h"

enum ko_command {
    KO_CMD_KUBERNETES,
    KO_CMD_LOCAL,
    KO_CMD_STATUS,
    KO_CMD_WAIT,
    KO_CMD_VERSION,
    KO_CMD_HELP
};

/* Strings borrow from argv or are literals. */
struct ko_args {
    enum ko_command command;
    /* kubernetes */
    const char *image;
    const char *heartbeat_host;
    uint16_t heartbeat_port, health_port;
    const char *ns; /* watched; NULL = all */
    const char *lease_name;
    /* local */
    const char *file, *dir, *broker;
    uint16_t port;
    int64_t timeout_ms;
};
/* 0 or -EINVAL with err naming the argument. Sets the log level. */
int ko_args_parse(int argc, char **argv, struct ko_args *ret, struct kc_err *err);
extern const char ko_args_usage[];

#endif
