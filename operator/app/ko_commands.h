/* ko_commands.h - one function a command. Internal to operator/app. 0, or negative with err. */
#ifndef KO_COMMANDS_H
#define KO_COMMANDS_H

#include "app/ko_args.h"

int ko_kubernetes(const struct ko_args *a, struct kc_err *err);
int ko_local(const struct ko_args *a, struct kc_err *err);
int ko_show_status(const struct ko_args *a, struct kc_err *err);
int ko_show_wait(const struct ko_args *a, struct kc_err *err);

#endif
