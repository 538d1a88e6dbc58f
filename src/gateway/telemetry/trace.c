/* Trace context: version 00 is "00-" 32 digits "-" 16 digits "-" two digits of flags. A later
 * version may append to that, behind another dash. */
#include "gateway/telemetry/trace.h"

#include <stdio.h>
#include <sys/random.h>

#include "base/clock.h"

#define PARENT_TEXT 55u
#define STATE_MAX   512u

/* xorshift64*, never zero. */
static uint64_t random_next(void)
{
    static _Thread_local uint64_t state;
    if (state == 0 && getrandom(&state, sizeof state, GRND_NONBLOCK) != sizeof state)
        state = (uint64_t)sm_clock_mono_ns();
    state |= state == 0;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(0x2545F4914F6CDD1D);
}

static void put_hex(uint64_t v, char out[16])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 15; i >= 0; i--, v >>= 4)
        out[i] = digits[v & 15];
}

/* Whether these are lower-case hexadecimal digits; and not all zero. */
static bool is_hex(const char *p, size_t n, bool *zero)
{
    *zero = true;
    for (size_t i = 0; i < n; i++) {
        if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f')))
            return false;
        *zero = *zero && p[i] == '0';
    }
    return true;
}

static bool is_parent(sm_str s)
{
    bool zero_trace, zero_span, any;
    return s.n >= PARENT_TEXT && s.p[2] == '-' && s.p[35] == '-' && s.p[52] == '-' &&
           is_hex(s.p, 2, &any) && memcmp(s.p, "ff", 2) != 0 &&
           (s.n == PARENT_TEXT || (memcmp(s.p, "00", 2) != 0 && s.p[PARENT_TEXT] == '-')) &&
           is_hex(s.p + 3, 32, &zero_trace) && !zero_trace && is_hex(s.p + 36, 16, &zero_span) &&
           !zero_span && is_hex(s.p + 53, 2, &any);
}

void gw_trace_start(gw_trace *t, sm_str parent, sm_str state)
{
    *t = (gw_trace){.sampled = true};
    if (is_parent(parent)) {
        memcpy(t->id, parent.p + 3, 32);
        memcpy(t->parent, parent.p + 36, 16);
        char last = parent.p[54];
        t->sampled = ((last <= '9' ? last - '0' : last - 'a' + 10) & 1) != 0;
        if (state.p != NULL && state.n <= STATE_MAX)
            t->state = state;
    } else {
        put_hex(random_next(), t->id);
        put_hex(random_next(), t->id + 16);
    }
    put_hex(random_next(), t->span);
}

void gw_trace_parent(const gw_trace *t, char out[GW_TRACEPARENT_TEXT])
{
    snprintf(out, GW_TRACEPARENT_TEXT, "00-%.32s-%.16s-%02d", t->id, t->span, t->sampled);
}

sm_err gw_trace_send(const gw_trace *t, sm_arena *a, sm_upstream_call *up)
{
    char text[GW_TRACEPARENT_TEXT];
    gw_trace_parent(t, text);
    sm_str parent = sm_arena_text(a, sm_str_from(text));
    sm_err e =
        parent.p == NULL ? SEMEL_E_NOMEM : sm_upstream_header(a, up, SM_STR("traceparent"), parent);
    return e == SM_OK && t->state.p != NULL
               ? sm_upstream_header(a, up, SM_STR("tracestate"), t->state)
               : e;
}
