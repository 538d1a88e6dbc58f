/* One line that is drawn over itself. */
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define BAR_WIDTH 30
#define PAUSE_MS  100
#define MOMENT_MS 300 /* what is over sooner needs no bar */

static int64_t monotonic_ms(void)
{
    return sm_clock_mono_ns() / 1000000;
}

cli_progress cli_progress_start(const char *what)
{
    const char *term = getenv("TERM");
    return (cli_progress){.what = what,
                          .on = isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0,
                          .next_ms = monotonic_ms() + MOMENT_MS};
}

void cli_progress_show(cli_progress *p, uint64_t done, uint64_t total)
{
    int64_t now;
    if (!p->on || (now = monotonic_ms()) < p->next_ms)
        return;
    p->next_ms = now + PAUSE_MS;
    p->drawn = true;
    if (total == 0) {
        fprintf(stderr, "\r\033[K%s: %" PRIu64, p->what, done);
        return;
    }
    double part = done < total ? (double)done / (double)total : 1;
    int full = (int)(part * BAR_WIDTH);
    fprintf(stderr, "\r\033[K%s [%.*s%*s] %3d%%", p->what, full, "##############################",
            BAR_WIDTH - full, "", (int)(part * 100));
}

void cli_progress_end(cli_progress *p)
{
    if (p->drawn)
        fprintf(stderr, "\r\033[K");
    p->drawn = false;
}
