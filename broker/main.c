/* kaas-broker: see usage(). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kb_broker.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_str.h"
#include "storage/ks_fsck.h"

static void usage(FILE *f)
{
    fputs("usage: kaas-broker --config FILE [--id N]\n"
          "       kaas-broker fsck [--verbose] DIR     verify a volume; no broker may use it\n"
          "       kaas-broker fsck --probe DIR         test whether a volume is fit for use\n"
          "       kaas-broker --version\n"
          "\n"
          "FILE is YAML; its fields are described in docs/architecture.md. The id is --id, or the\n"
          "number at the end of $POD_NAME. $KAAS_LOG_LEVEL: debug, info (default), warn, error.\n",
          f);
}

static int set_log_level(void)
{
    const char *text = getenv("KAAS_LOG_LEVEL");
    enum kc_level level = KC_INFO;
    if (text && kc_log_parse_level(kc_str_of(text), &level)) {
        fprintf(stderr, "kaas-broker: KAAS_LOG_LEVEL must be debug, info, warn or error\n");
        return -1;
    }
    kc_log_set_level(level);
    return 0;
}

static int run(const char *path, int32_t id)
{
    struct kb_config_env env = {id, getenv("POD_NAME"), getenv("POD_UID")};
    struct kb_config *config;
    struct kc_err err;
    if (kb_config_load(path, &env, &config, &err)) {
        fprintf(stderr, "kaas-broker: %s: %s\n", path, err.msg);
        return 2;
    }
    /* A name server that is silent must not hold up a new stream to the operator, or the exit. */
    setenv("RES_OPTIONS", "timeout:1 attempts:2", 0);
    return kb_broker_run(config);
}

/* fsck: 0 = every partition verifies, 1 = one does not, 2 = the volume could not be read. */
static int fsck(int argc, char **argv)
{
    static const struct option options[] = {
        {"verbose", no_argument, NULL, 'v'}, {"probe", no_argument, NULL, 'p'}, {NULL, 0, NULL, 0}};
    bool verbose = false, probe = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == '?') {
            usage(stderr);
            return 2;
        }
        verbose |= c == 'v';
        probe |= c == 'p';
    }
    if (optind != argc - 1 || set_log_level()) {
        usage(stderr);
        return 2;
    }
    struct ks_fsck_opts opts = {.dir = argv[optind], .verbose = verbose, .out = stdout};
    struct ks_fsck_result result;
    struct kc_err err;
    int rc = probe ? ks_fsck_probe(opts.dir, stdout, &err) : ks_fsck(&opts, &result, &err);
    if (rc) {
        fprintf(stderr, "kaas-broker: fsck: %s\n", err.msg);
    }
    return rc == 0 ? 0 : rc == KC_E_CORRUPT ? 1 : 2;
}

int main(int argc, char **argv)
{
    kc_json_setup();
    if (argc > 1 && strcmp(argv[1], "fsck") == 0) {
        return fsck(argc - 1, argv + 1);
    }
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"id", required_argument, NULL, 'i'},
                                            {"version", no_argument, NULL, 'v'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *path = NULL;
    int32_t id = -1;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'c':
            path = optarg;
            break;
        case 'i':
            if (kc_parse_i32(kc_str_of(optarg), &id) || id < 0) {
                fprintf(stderr, "kaas-broker: --id must be a number from 0\n");
                return 2;
            }
            break;
        case 'v':
            printf("kaas-broker %s\n", KB_VERSION);
            return 0;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (!path || optind != argc || set_log_level()) {
        usage(stderr);
        return 2;
    }
    return run(path, id);
}
