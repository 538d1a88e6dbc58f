/*
 * An outcome as an HTTP answer: its own status and bytes, with those of its headers that were kept
 * (I4); and what the server's threads work with when they give one from memory.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/header.h"
#include "base/limits.h"
#include "gateway/run/returned.h"
#include "gateway/run/run.h"
#include "gateway/telemetry/metrics.h"

static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void free_own(void *context)
{
    gw_own *own = context;
    semel_answer_free(own->answer);
    sm_arena_fini(&own->arena);
    free(own);
}

static void make_own(void)
{
    pthread_key_create(&own_key, free_own);
}

gw_own *gw_own_get(void)
{
    pthread_once(&own_once, make_own);
    gw_own *own = pthread_getspecific(own_key);
    if (own == NULL && (own = calloc(1, sizeof *own)) != NULL) {
        own->answer = semel_answer_new();
        sm_arena_init(&own->arena, SM_ARENA_MAX);
        if (own->answer == NULL || pthread_setspecific(own_key, own) != 0) {
            free_own(own);
            return NULL;
        }
    }
    if (own != NULL)
        sm_arena_reset(&own->arena);
    return own;
}

static void set_header(sm_arena *arena, gw_request *r, sm_str name, sm_str value, sm_str *type)
{
    if (sm_header_is(name, SM_STR("Content-Type")))
        *type = sm_arena_text(arena, value);
    else
        gw_returned_put(r, name, value);
}

/* The recorded headers as an object; NULL: there are none. */
static const sm_json *read_headers(const semel_answer *a)
{
    const sm_json *headers = NULL;
    bool read = a->outcome.headers.p != NULL &&
                sm_json_read(sm_answer_arena(a), a->outcome.headers, &sm_json_default_limits,
                             &headers, NULL) == SM_OK;
    return read && headers->type == SM_JSON_OBJECT ? headers : NULL;
}

sm_str gw_recorded_find(const semel_answer *a, sm_str wanted, size_t *n)
{
    const sm_json *headers = read_headers(a);
    sm_str first = {0};
    *n = 0;
    if (headers == NULL)
        return first;
    const sm_json *name = headers + 1;
    for (uint32_t i = 0; i < headers->len; i++, name = sm_json_next(name + 1)) {
        bool several = name[1].type == SM_JSON_ARRAY;
        const sm_json *value = several ? name + 2 : name + 1;
        if (!sm_header_is(sm_json_text(name), wanted))
            continue;
        for (uint32_t k = 0; k < (several ? name[1].len : 1); k++, value = sm_json_next(value))
            if (value->type == SM_JSON_STRING && (*n)++ == 0)
                first = sm_json_text(value);
    }
    return first;
}

static void set_headers(gw_request *r, const semel_answer *a, sm_str *type)
{
    const sm_json *headers = read_headers(a);
    if (headers == NULL)
        return;
    const sm_json *name = headers + 1;
    for (uint32_t i = 0; i < headers->len; i++, name = sm_json_next(name + 1)) {
        bool several = name[1].type == SM_JSON_ARRAY;
        const sm_json *value = several ? name + 2 : name + 1;
        uint32_t n = several ? name[1].len : 1;
        for (uint32_t k = 0; k < n; k++, value = sm_json_next(value))
            if (value->type == SM_JSON_STRING)
                set_header(sm_answer_arena(a), r, sm_json_text(name), sm_json_text(value), type);
    }
}

/* A tool that gave no answer at all, or one that a begin/commit client recorded as failed. */
static void reply_failed(gw_request *r, const semel_answer *a)
{
    semel_answer refusal = *a;
    bool doubt = a->outcome.applied == SEMEL_APPLIED_UNKNOWN; /* of a call that is not recorded */
    refusal.verdict = SEMEL_REFUSED;
    refusal.code = doubt ? SEMEL_C_IN_DOUBT : SEMEL_C_UPSTREAM_FAILED;
    refusal.retriable = a->executed && !doubt;
    refusal.retry_after_ms = refusal.retriable ? 1000 : 0;
    refusal.message = doubt ? SM_STR("The tool gave no answer; it may or may not have acted.")
                            : SM_STR("The tool failed, and nothing was done.");
    refusal.corrective_action = doubt ? SM_STR("Find out before you try again.")
                                      : SM_STR("Ask again later with the same call.");
    sm_arena *arena = sm_answer_arena(a);
    const sm_json *value = NULL, *error = NULL;
    if (sm_json_read(arena, a->outcome.value, &sm_json_default_limits, &value, NULL) == SM_OK)
        error = sm_json_find(value, SM_STR("error"));
    if (error != NULL && error->type == SM_JSON_STRING)
        refusal.message =
            sm_arena_printf(arena, "The tool failed: %.*s.", SM_FMT(sm_json_text(error)));
    gw_reply_refusal(r, &refusal);
}

void gw_reply_about(gw_request *r, const semel_answer *a)
{
    r->effect = a->effect;
    gw_count_answer(r->g->metrics, a);
    if (a->effect.p != NULL)
        gw_set(r, "Semel-Effect", a->effect);
    gw_set_warning(r, a);
}

void gw_reply_outcome(gw_request *r, const semel_answer *a)
{
    gw_reply_about(r, a);
    if (a->verdict == SEMEL_REFUSED || !a->has_outcome) {
        gw_reply_refusal(r, a);
        return;
    }
    const semel_outcome *o = &a->outcome;
    bool doubt = sm_str_is(a->result, SM_PUT_BACK) || sm_str_is(a->result, SM_UNRECORDED);
    if (doubt)
        gw_set(r, "Semel-Doubt", a->result);
    else if (a->executed)
        gw_ledger_works(r->g);
    if (!a->executed)
        gw_set(r, "Idempotent-Replayed", SM_STR("true"));
    if (!o->kept) {
        semel_answer refusal = *a;
        refusal.verdict = SEMEL_REFUSED;
        refusal.code = SEMEL_C_RESULT_EXPIRED;
        refusal.message = a->outcome.kind == SEMEL_FAILURE
                              ? SM_STR("The tool refused this; its answer was too large to keep.")
                              : SM_STR("This was done; its result was too large to keep.");
        refusal.corrective_action =
            SM_STR("Go on without the result, or read it from where it took effect.");
        gw_reply_refusal(r, &refusal);
        return;
    }
    if (o->status == 0 && o->kind == SEMEL_FAILURE) {
        reply_failed(r, a);
        return;
    }
    sm_str type = o->is_json || o->status == 0 ? SM_STR("application/json") : (sm_str){0};
    set_headers(r, a, &type);
    gw_reply(r, o->status == 0 ? 200 : o->status, type.p, o->value);
}
