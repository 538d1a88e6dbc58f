/* Destinations, and the slots of their limits. */
#include "core/limit.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>

#include "base/duration.h"
#include "json/canon.h"

/* September 2001: whatever is earlier is not a time that a clock showed. */
#define LEAST ((int64_t)1000000000000)

/* A counter stays so long after its slot is free. */
#define KEEP_MS ((int64_t)24 * 3600 * 1000)

/* ---- destinations ----------------------------------------------------------------------------*/

typedef struct finding {
    sm_buf *scratch;
    const sm_limits *limits;
    sm_str tenant;
    const sm_hash *secret;
    sm_destinations *out;
    sm_fault *fault;
} finding;

static sm_err complain(const finding *f, const sm_limit_rule *rule, const char *what)
{
    return sm_fault_set(f->fault, SEMEL_E_BAD_ARGUMENTS,
                        "the argument %.*s says whom this call is for, and there is a limit for "
                        "each: %s",
                        SM_FMT(rule->per.text), what);
}

static bool is_plain(const sm_json *v)
{
    return v->type == SM_JSON_STRING || v->type == SM_JSON_NUMBER || v->type == SM_JSON_TRUE ||
           v->type == SM_JSON_FALSE;
}

static sm_err hash_one(const finding *f, const sm_limit_rule *rule, const sm_json *value,
                       sm_destination *out)
{
    sm_buf *b = f->scratch;
    sm_buf_clear(b);
    sm_buf_printf(b, "semel-limit-1 %lld %zu:%zu:%zu:", (long long)rule->window_ms, f->limits->of.n,
                  f->tenant.n, rule->per.text.n);
    sm_buf_str(b, f->limits->of);
    sm_buf_str(b, f->tenant);
    sm_buf_str(b, rule->per.text);
    sm_err e = sm_json_canon(value, b, (sm_str){0}, f->fault);
    if (e != SM_OK)
        return e;
    unsigned char mac[SM_HASH_BYTES];
    unsigned n = 0;
    if (HMAC(EVP_sha256(), f->secret->b, (int)sizeof f->secret->b, (const unsigned char *)b->p,
             b->len, mac, &n) == NULL ||
        n != sizeof mac)
        return SEMEL_E_CRYPTO;
    memcpy(out->id, mac, sizeof out->id);
    out->rule = rule;
    return SM_OK;
}

static sm_err add(const finding *f, const sm_limit_rule *rule, const sm_json *value)
{
    sm_destinations *out = f->out;
    sm_destination d;
    if (!is_plain(value))
        return complain(f, rule, "give a text or a number, or a list of these");
    sm_err e = hash_one(f, rule, value, &d);
    if (e != SM_OK)
        return e;
    for (uint32_t i = 0; i < out->n; i++) {
        if (memcmp(out->v[i].id, d.id, sizeof d.id) == 0)
            return SM_OK; /* named twice */
    }
    if (out->n == SM_DESTINATIONS_MAX)
        return complain(f, rule, "one call may have at most 16; make several calls");
    out->v[out->n++] = d;
    return SM_OK;
}

static sm_err add_rule(const finding *f, const sm_limit_rule *rule, const sm_json *args)
{
    const sm_json *value = sm_pointer_get(&rule->per, args);
    bool list = value != NULL && value->type == SM_JSON_ARRAY;
    if (value == NULL || value->type == SM_JSON_NULL || (list && value->len == 0))
        return complain(f, rule, "it must be given");
    const sm_json *item = list ? value + 1 : value;
    sm_err e = SM_OK;
    for (uint32_t i = 0; i < (list ? value->len : 1) && e == SM_OK; i++, item = sm_json_next(item))
        e = add(f, rule, item);
    return e;
}

sm_err sm_destinations_find(sm_buf *scratch, const sm_limits *limits, sm_str scope,
                            const sm_json *args, const sm_hash *secret, sm_destinations *out,
                            sm_fault *fault)
{
    const char *slash = memchr(scope.p, '/', scope.n);
    sm_str tenant = {scope.p, slash == NULL ? scope.n : (size_t)(slash - scope.p)};
    finding f = {scratch, limits, tenant, secret, out, fault};
    sm_err e = SM_OK;
    out->n = 0;
    for (uint32_t i = 0; i < limits->n && e == SM_OK; i++)
        e = add_rule(&f, &limits->v[i], args);
    return e;
}

/* ---- slots -----------------------------------------------------------------------------------*/

sm_str sm_slot_name(const uint8_t id[16], uint32_t number, char text[SM_SLOT_NAME])
{
    int n = snprintf(text, SM_SLOT_NAME, "limit:");
    for (size_t i = 0; i < 16; i++)
        n += snprintf(text + n, SM_SLOT_NAME - (size_t)n, "%02x", id[i]);
    n += snprintf(text + n, SM_SLOT_NAME - (size_t)n, ":%u", number);
    return (sm_str){text, (size_t)n};
}

bool sm_slot_free(int64_t value, int64_t now, int64_t *free_at)
{
    *free_at = value == 0 ? 0 : value < sm_slot_taken(LEAST) ? INT64_MAX : value / 2;
    return (value & 1) != 0 && *free_at != INT64_MAX ? true : *free_at <= now;
}

int64_t sm_slot_take(int64_t value, int64_t now, int64_t window_ms)
{
    int64_t end = sm_time_after(now, window_ms);
    return sm_slot_taken(end) > value ? end : value / 2 + 1;
}

int64_t sm_slot_until(int64_t end)
{
    return sm_time_after(end, KEEP_MS);
}
