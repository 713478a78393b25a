#include "app/ko_app.h"

#include <stdio.h>

#include "app/ko_commands.h"
#include "base/kc_json.h"

int ko_app_main(int argc, char **argv)
{
    struct ko_args a;
    struct kc_err err = {0};
    kc_json_setup();
    int rc = ko_args_parse(argc, argv, &a, &err);
    if (rc) {
        fprintf(stderr, "kaas-operator: %s\n\n%s", err.msg, ko_args_usage);
        return 2;
    }
    switch (a.command) {
    case KO_CMD_VERSION:
        puts("kaas-operator " KO_VERSION);
        break;
    case KO_CMD_HELP:
        fputs(ko_args_usage, stdout);
        break;
    case KO_CMD_KUBERNETES:
        rc = ko_kubernetes(&a, &err);
        break;
    case KO_CMD_LOCAL:
        rc = ko_local(&a, &err);
        break;
    case KO_CMD_STATUS:
        rc = ko_show_status(&a, &err);
        break;
    case KO_CMD_WAIT:
        rc = ko_show_wait(&a, &err);
        break;
    }
    if (rc) {
        fprintf(stderr, "kaas-operator: %s\n", err.msg);
        return 1;
    }
    return 0;
}
