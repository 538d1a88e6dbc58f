/*
 * Names of secrets: which arguments and headers must not be stored as they are.
 *
 * One table says it for all places. It is meant to miss little that is a credential, and to leave
 * alone what a person decides by: amounts, accounts, recipients, ids.
 */
#ifndef SM_CORE_SECRET_H
#define SM_CORE_SECRET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* Where a name stands. URLs have short names for secrets that mean other things elsewhere. A header
 * that is secret is part of a request's identity, so one that is new for each try does not count.
 */
typedef enum sm_secret_place {
    SM_IN_BODY, /* and in a form, or in the arguments of any other tool */
    SM_IN_URL,
    SM_IN_HEADER,
    SM_SECRET_PLACES
} sm_secret_place;

/* Whether a name is that of a secret, however it is written: only letters count, in either case. */
bool sm_name_secret(sm_str name, sm_secret_place place);

/* The same for a value in a document. `way` holds the names that lead to it, the outermost first:
 * the number of a card is in {"card": {"number": ...}}. */
bool sm_way_secret(const sm_str *way, uint32_t n);

#endif
