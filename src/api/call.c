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

sm_err sm_call_parse(sm_arena *a, sm_str text, const char *const *taken, sm_call_form form,
                     int64_t wait_max_ms, semel_call *out, sm_fault *fault)
{
    int64_t wait_ms = form == SM_FORM_CALL ? CALL_WAIT_MS : 0;
    *out =
        (semel_call){.size = sizeof *out, .wait_ms = wait_ms < wait_max_ms ? wait_ms : wait_max_ms};
    sm_object_member members[CALL_MEMBERS];
    memcpy(members, call_members, sizeof members);
    members[WAIT_MEMBER].max = wait_max_ms;
    sm_err e =
        sm_object_take(a, text, taken, members, CALL_MEMBERS - (form == SM_FORM_CALL), out, fault);
    if (e != SM_OK)
        return e;
    out->args = sm_arena_text(a, out->args); /* it was the text's, which goes with the request */
    return out->args.p == NULL ? sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory") : SM_OK;
}
