/*
 * Calls as clients write them. This is on the path of every replay, so the text is read once and
 * its arguments are handed on as they came: the ledger makes their canonical form itself.
 */
#include "api/body.h"

#include <stddef.h>

#define CALL_WAIT_MS 30000

#define MEMBER(n) .name = #n, .offset = offsetof(semel_call, n)
static const sm_object_member call_members[] = {
    {MEMBER(scope), .kind = SM_M_TEXT, .required = true},
    {MEMBER(step), .kind = SM_M_LABEL},
    {MEMBER(tool), .kind = SM_M_TEXT, .required = true},
    {MEMBER(args), .kind = SM_M_ANY, .required = true},
    {MEMBER(key), .kind = SM_M_TEXT},
    {MEMBER(wait_ms), .kind = SM_M_COUNT},
    {MEMBER(after), .kind = SM_M_TEXT}, /* last: only in BEGIN */
};
#define CALL_MEMBERS (sizeof call_members / sizeof call_members[0])
#define WAIT_MEMBER  5

/* The table of a form. */
static size_t form_members(sm_call_form form, int64_t wait_max_ms,
                           sm_object_member members[CALL_MEMBERS])
{
    memcpy(members, call_members, sizeof call_members);
    members[WAIT_MEMBER].max = wait_max_ms;
    return CALL_MEMBERS - (form == SM_FORM_CALL);
}

static semel_call blank(sm_call_form form, int64_t wait_max_ms)
{
    int64_t wait_ms = form == SM_FORM_CALL ? CALL_WAIT_MS : 0;
    return (semel_call){.size = sizeof(semel_call),
                        .wait_ms = wait_ms < wait_max_ms ? wait_ms : wait_max_ms};
}

/* The arguments are the text's, which goes with the request. */
static sm_err keep_args(sm_arena *a, semel_call *call, sm_fault *fault)
{
    call->args = sm_arena_text(a, call->args);
    return call->args.p == NULL ? sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory") : SM_OK;
}

sm_err sm_call_parse(sm_arena *a, sm_str text, const char *const *taken, sm_call_form form,
                     int64_t wait_max_ms, semel_call *out, sm_fault *fault)
{
    sm_object_member members[CALL_MEMBERS];
    size_t n = form_members(form, wait_max_ms, members);
    *out = blank(form, wait_max_ms);
    sm_err e = sm_object_take(a, text, taken, members, n, out, fault);
    return e == SM_OK ? keep_args(a, out, fault) : e;
}

sm_err sm_call_read(sm_arena *a, const sm_object *o, sm_call_form form, int64_t wait_max_ms,
                    semel_call *out, sm_fault *fault)
{
    sm_object_member members[CALL_MEMBERS];
    size_t n = form_members(form, wait_max_ms, members);
    *out = blank(form, wait_max_ms);
    sm_err e = sm_object_read(a, o, members, n, out, fault);
    return e == SM_OK ? keep_args(a, out, fault) : e;
}
