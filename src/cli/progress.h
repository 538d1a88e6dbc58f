/*
 * A bar on stderr while something takes long: only on a terminal, only after a moment, erased at
 * the end. Nothing that is printed depends on it.
 */
#ifndef SM_CLI_PROGRESS_H
#define SM_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cli_progress {
    const char *what;
    bool on;    /* stderr is a terminal */
    bool drawn; /* there is something to erase */
    int64_t next_ms;
} cli_progress;

cli_progress cli_progress_start(const char *what);

/* Draws how far it is, at most ten times a second. `total` is 0 if unknown. */
void cli_progress_show(cli_progress *p, uint64_t done, uint64_t total);

/* Erases the bar, also before something else is printed in between. */
void cli_progress_end(cli_progress *p);

#endif
