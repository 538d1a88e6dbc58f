/* Checking the audit trail, for `audit verify` and `doctor`. */
#ifndef SM_CLI_VERIFY_H
#define SM_CLI_VERIFY_H

#include "cli/ledger.h"

typedef struct cli_verified {
    semel_verified counts;
    sm_buf flaws; /* those that are listed: lines, or members of a JSON list */
} cli_verified;

/* Checks the whole trail, with a progress bar. Explains a failure and returns the exit code; flaws
 * are none. They are listed in the form that the command prints. */
int cli_verify(cli_ledger *l, cli_verified *v);
void cli_verified_fini(cli_verified *v);

/* What was found: sentences, or one JSON object. */
void cli_put_verified(sm_buf *out, const cli_verified *v, bool json);

#endif
