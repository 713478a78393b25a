#include "app/ko_args.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_log.h"
#include "base/kc_str.h"

const char ko_args_usage[] =
    "usage: kaas-operator COMMAND [OPTION...]\n"
    "\n"
    "  kubernetes                      reconcile the resources of a Kubernetes cluster (in a pod,\n"
    "                                  or with KUBECONFIG)\n"
    "    --heartbeat-host HOST         name of the headless Service that brokers dial\n"
    "    --heartbeat-port PORT         7070\n"
    "    --health-port PORT            /readyz, /healthz, /metrics; 8080\n"
    "    --image IMAGE                 of brokers, where a KaasCluster names none\n"
    "    --namespace NS                watch one namespace; default all\n"
    "    --lease NAME                  kaas-operator\n"
    "  local -f FILE --dir DIR         run the KaasCluster of FILE on this machine\n"
    "    --broker PATH                 kaas-broker; default beside this program\n"
    "    --port N                      broker n listens on N+n, its health on N+100+n; the "
    "operator\n"
    "                                  on N+200 and N+201; 9092\n"
    "  local status --dir DIR          print the clusters and brokers of a local host\n"
    "  local wait --dir DIR            wait until the cluster is Ready\n"
    "    --timeout SECONDS             60\n"
    "  --version, --help\n"
    "\n"
    "  --log-level debug|info|warn|error\n";

enum {
    OPT_IMAGE = 256,
    OPT_HB_HOST,
    OPT_HB_PORT,
    OPT_HEALTH_PORT,
    OPT_NS,
    OPT_LEASE,
    OPT_DIR,
    OPT_BROKER,
    OPT_PORT,
    OPT_TIMEOUT,
    OPT_LOG
};

static const struct option options[] = {
    {"image", required_argument, NULL, OPT_IMAGE},
    {"heartbeat-host", required_argument, NULL, OPT_HB_HOST},
    {"heartbeat-port", required_argument, NULL, OPT_HB_PORT},
    {"health-port", required_argument, NULL, OPT_HEALTH_PORT},
    {"namespace", required_argument, NULL, OPT_NS},
    {"lease", required_argument, NULL, OPT_LEASE},
    {"file", required_argument, NULL, 'f'},
    {"dir", required_argument, NULL, OPT_DIR},
    {"broker", required_argument, NULL, OPT_BROKER},
    {"port", required_argument, NULL, OPT_PORT},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"log-level", required_argument, NULL, OPT_LOG},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int number(const char *what, const char *text, int32_t min, int32_t max, int32_t *ret,
                  struct kc_err *err)
{
    if (kc_parse_i32(kc_str_of(text), ret) || *ret < min || *ret > max) {
        return kc_fail(err, -EINVAL, "%s must be a number from %d to %d", what, min, max);
    }
    return 0;
}

static int take(int opt, const char *value, struct ko_args *a, struct kc_err *err)
{
    enum kc_level level;
    int32_t n = 0;
    int rc = 0;
    switch (opt) {
    case OPT_IMAGE:
        a->image = value;
        break;
    case OPT_HB_HOST:
        a->heartbeat_host = value;
        break;
    case OPT_HB_PORT:
        rc = number("--heartbeat-port", value, 1, 65535, &n, err);
        a->heartbeat_port = (uint16_t)n;
        break;
    case OPT_HEALTH_PORT:
        rc = number("--health-port", value, 1, 65535, &n, err);
        a->health_port = (uint16_t)n;
        break;
    case OPT_NS:
        a->ns = *value ? value : NULL;
        break;
    case OPT_LEASE:
        a->lease_name = value;
        break;
    case 'f':
        a->file = value;
        break;
    case OPT_DIR:
        a->dir = value;
        break;
    case OPT_BROKER:
        a->broker = value;
        break;
    case OPT_PORT:
        rc = number("--port", value, 1, 65000, &n, err);
        a->port = (uint16_t)n;
        break;
    case OPT_TIMEOUT:
        rc = number("--timeout", value, 1, 86400, &n, err);
        a->timeout_ms = (int64_t)n * 1000;
        break;
    case OPT_LOG:
        rc = kc_log_parse_level(kc_str_of(value), &level);
        if (rc) {
            return kc_fail(err, -EINVAL, "--log-level must be debug, info, warn or error");
        }
        kc_log_set_level(level);
        break;
    case 'V':
        a->command = KO_CMD_VERSION;
        break;
    case 'h':
        a->command = KO_CMD_HELP;
        break;
    default:
        return kc_fail(err, -EINVAL, "unknown option, or one without its value");
    }
    return rc;
}

static int command(int argc, char **argv, struct ko_args *a, struct kc_err *err)
{
    const char *first = argc > 0 ? argv[0] : "", *second = argc > 1 ? argv[1] : "";
    bool local = strcmp(first, "local") == 0;
    if (argc > 2 || (argc == 2 && !local)) {
        return kc_fail(err, -EINVAL, "unexpected \"%s\"", argv[argc - 1]);
    }
    if (strcmp(first, "kubernetes") == 0) {
        a->command = KO_CMD_KUBERNETES;
        return a->heartbeat_host ? 0 : kc_fail(err, -EINVAL, "--heartbeat-host is missing");
    }
    if (!local) {
        return kc_fail(err, -EINVAL, "unknown command \"%s\"", first);
    }
    a->command = KO_CMD_LOCAL;
    if (strcmp(second, "status") == 0) {
        a->command = KO_CMD_STATUS;
    } else if (strcmp(second, "wait") == 0) {
        a->command = KO_CMD_WAIT;
    } else if (*second) {
        return kc_fail(err, -EINVAL, "unknown command \"local %s\"", second);
    }
    if (!a->dir || !*a->dir) {
        return kc_fail(err, -EINVAL, "--dir is missing");
    }
    if (a->command == KO_CMD_LOCAL && !a->file) {
        return kc_fail(err, -EINVAL, "-f FILE is missing");
    }
    return 0;
}

int ko_args_parse(int argc, char **argv, struct ko_args *ret, struct kc_err *err)
{
    *ret = (struct ko_args){.command = KO_CMD_KUBERNETES,
                            .heartbeat_port = 7070,
                            .health_port = 8080,
                            .lease_name = "kaas-operator",
                            .image = "",
                            .port = 9092,
                            .timeout_ms = 60000};
    opterr = 0;
    optind = 1;
    for (int opt; (opt = getopt_long(argc, argv, "f:h", options, NULL)) != -1;) {
        int rc = take(opt, optarg, ret, err);
        if (rc) {
            return rc;
        }
    }
    if (ret->command == KO_CMD_VERSION || ret->command == KO_CMD_HELP) {
        return 0;
    }
    return command(argc - optind, argv + optind, ret, err);
}
