/* Checking the audit trail, for `audit verify` and `doctor`. */
#ifndef SM_CLI_VERIFY_H
#define SM_CLI_VERIFY_H

#include "cli/ledger.h"

typedef struct cli_verification {
    semel_verified counts;
    sm_buf flaws; /* those that are listed: lines, or members of a JSON list */
} cli_verification;

/* Checks the whole trail, with a progress bar. Explains a failure and returns the exit code; flaws
 * are none. They are listed in the form that the command prints. */
int cli_verify(cli_ledger *l, cli_verification *v);
void cli_verified_fini(cli_verification *v);

/* What was found: sentences, or one JSON object. */
void cli_put_verified(sm_buf *out, const cli_verification *v, bool json);

#endif
