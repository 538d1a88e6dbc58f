/* Names and sentences of the public lists. */
#include "semel/types.h"

#include <assert.h>

static_assert((int)SEMEL_S_COUNT <= SEMEL_STATES_MAX, "there is room for so many");

const char *semel_err_name(semel_err e)
{
    static const char *const names[] = {
#define X(code, sentence) #code,
        SEMEL_ERRORS(X)
#undef X
    };
    assert((unsigned)e < SEMEL_E_COUNT);
    return names[e];
}

const char *semel_err_text(semel_err e)
{
    static const char *const texts[] = {
#define X(code, sentence) sentence,
        SEMEL_ERRORS(X)
#undef X
    };
    assert((unsigned)e < SEMEL_E_COUNT);
    return texts[e];
}

const char *semel_state_name(semel_state s)
{
    static const char *const names[] = {
#define X(code, text) text,
        SEMEL_STATES(X)
#undef X
    };
    assert((unsigned)s < SEMEL_S_COUNT);
    return names[s];
}

const char *semel_code_name(semel_code c)
{
    static const char *const names[] = {
#define X(code, status, retriable) #code,
        SEMEL_CODES(X)
#undef X
    };
    assert((unsigned)c < SEMEL_C_COUNT);
    return c == SEMEL_C_NONE ? "" : names[c];
}

int semel_code_exit(semel_code c)
{
    static const unsigned char statuses[] = {
#define X(code, status, retriable) status,
        SEMEL_CODES(X)
#undef X
    };
    assert((unsigned)c < SEMEL_C_COUNT);
    return statuses[c];
}

bool semel_code_retriable(semel_code c)
{
    static const bool retriable_codes[] = {
#define X(code, status, retriable) retriable,
        SEMEL_CODES(X)
#undef X
    };
    assert((unsigned)c < SEMEL_C_COUNT);
    return retriable_codes[c];
}
