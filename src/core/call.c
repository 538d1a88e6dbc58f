/* The rules for the parts of a call. */
#include "core/call.h"

#include "base/limits.h"
#include "base/utf8.h"

#define ONES 0x0101010101010101u

/* For each of eight bytes, its high bit: set if it is not ASCII, below the space, or (by a carry)
 * above '~'. */
static inline uint64_t odd_bytes(const char *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x | (x - ONES * 0x20) | (x + ONES);
}

/* Whether all bytes are printable ASCII, which nearly every part of a call is. The last eight may
 * be looked at twice. */
static bool printable(sm_str s)
{
    uint64_t odd = 0;
    if (s.n < 8) {
        for (size_t i = 0; i < s.n; i++) {
            uint64_t x = (unsigned char)s.p[i];
            odd |= x | (x - 0x20) | (x + 1);
        }
    } else {
        for (size_t i = 0; i + 8 < s.n; i += 8)
            odd |= odd_bytes(s.p + i);
        odd |= odd_bytes(s.p + s.n - 8);
    }
    return (odd & ONES * 0x80) == 0;
}

static sm_err check_part(const char *what, sm_str part, size_t most, sm_fault *fault)
{
    if (part.n > 0 && part.n <= most && printable(part))
        return SM_OK;
    if (part.n == 0)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the %s is empty", what);
    if (part.n > most)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the %s is %zu bytes long; at most %zu are allowed", what, part.n,
                            most);
    if (!sm_utf8_valid(part))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the %s is not valid UTF-8", what);
    for (size_t i = 0; i < part.n; i++) {
        unsigned char c = (unsigned char)part.p[i];
        bool c1 = c == 0xC2 && (unsigned char)part.p[i + 1] < 0xA0; /* U+0080 to U+009F */
        if (c < 0x20 || c == 0x7F || c1)
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                "the %s has a control character (0x%02X) at byte %zu", what, c,
                                i + 1);
    }
    return SM_OK;
}

/* Prefixes of a scope match whole segments, so each segment must be there to be seen. */
static sm_err check_segments(sm_str scope, sm_fault *fault)
{
    if (scope.p[0] != '/' && scope.p[scope.n - 1] != '/' &&
        memmem(scope.p, scope.n, "//", 2) == NULL)
        return SM_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                        "the scope \"%.*s\" has an empty segment; write it like "
                        "tenant/agent/run, without '/' at either end",
                        SM_FMT(scope));
}

sm_err sm_call_check(const sm_parsed_call *call, sm_fault *fault)
{
    sm_err e = check_part("tool", call->tool, SM_TOOL_MAX, fault);
    if (e == SM_OK)
        e = check_part("scope", call->scope, SM_SCOPE_MAX, fault);
    if (e == SM_OK)
        e = check_segments(call->scope, fault);
    if (e == SM_OK && call->step.p != NULL)
        e = check_part("step", call->step, SM_STEP_MAX, fault);
    if (e == SM_OK && call->key.p != NULL)
        e = check_part("key", call->key, SM_KEY_MAX, fault);
    return e;
}

bool sm_scope_within(sm_str scope, sm_str above)
{
    return above.n == 0 || (scope.n >= above.n && memcmp(scope.p, above.p, above.n) == 0 &&
                            (scope.n == above.n || scope.p[above.n] == '/'));
}

sm_str sm_scope_leading(sm_str scope, unsigned segments)
{
    for (size_t i = 0; i < scope.n; i++) {
        if (scope.p[i] == '/' && --segments == 0)
            return (sm_str){scope.p, i};
    }
    return scope;
}
