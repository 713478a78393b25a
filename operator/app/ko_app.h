/* ko_app.h - the operator program: its commands, and the wiring of both hosts. */
#ifndef KO_APP_H
#define KO_APP_H

/* Runs a command line; returns the exit code. */
int ko_app_main(int argc, char **argv);

#endif
