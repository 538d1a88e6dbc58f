/* What people stop, resume and reopen. */
#include "base/limits.h"
#include "base/utf8.h"
#include "ledger/guard/circuit.h"
#include "ledger/service.h"
#include "ledger/work/ledger.h"

static sm_err check_words(semel *s, sm_str *actor, sm_str reason, semel_fault *fault)
{
    *actor = sm_ledger_actor(s, *actor);
    if (actor->n > SM_ACTOR_MAX || !sm_utf8_valid(*actor))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the actor is not a name of at most %u bytes", SM_ACTOR_MAX);
    if (reason.n > SM_REASON_MAX)
        return sm_fault_set(fault, SEMEL_E_LIMIT, "the reason is longer than %u bytes",
                            SM_REASON_MAX);
    return reason.p == NULL || sm_utf8_valid(reason)
               ? SM_OK
               : sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the reason is not UTF-8");
}

/* A name is one that a call could have. */
static sm_err check_name(sm_halt_kind kind, sm_str name, semel_fault *fault)
{
    if (kind == SM_HALT_ALL)
        return name.p == NULL
                   ? SM_OK
                   : sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "stopping everything has no name");
    sm_parsed_call call = {.scope = SM_STR("any"), .tool = SM_STR("any")};
    *(kind == SM_HALT_TOOL ? &call.tool : &call.scope) = name;
    return sm_call_check(&call, fault);
}

static sm_err check(semel *s, sm_halt_kind kind, sm_str name, sm_str *actor, sm_str reason,
                    semel_fault *fault)
{
    sm_err e = kind > SM_HALT_LOOP ? sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                                  "kind is not a valid semel_stop_kind")
                                   : check_words(s, actor, reason, fault);
    return e == SM_OK ? check_name(kind, name, fault) : e;
}

_Static_assert((int)SEMEL_STOP_ALL == SM_HALT_ALL && (int)SEMEL_STOP_SCOPE == SM_HALT_SCOPE &&
                   (int)SEMEL_STOP_TOOL == SM_HALT_TOOL,
               "the public kinds are the first ones");

static sm_halt_kind kind_of(semel_stop_kind kind)
{
    return (unsigned)kind <= SEMEL_STOP_TOOL ? (sm_halt_kind)kind
                                             : (sm_halt_kind)(SM_HALT_LOOP + 1);
}

sm_err sm_stop(semel *s, semel_stop_kind kind, sm_str name, sm_str actor, sm_str bound,
               sm_str reason, bool *changed, sm_fault *fault)
{
    *changed = false;
    sm_halt h = {.kind = kind_of(kind), .name = name, .reason = reason, .bound = bound};
    sm_err e = check(s, h.kind, name, &actor, reason, fault);
    return e == SM_OK ? sm_board_halt(s, &h, actor, changed, fault) : e;
}

sm_err sm_resume(semel *s, semel_stop_kind kind, sm_str name, sm_str actor, sm_str bound,
                 sm_str reason, bool *changed, sm_fault *fault)
{
    *changed = false;
    bool closed = false;
    sm_err e = check(s, kind_of(kind), name, &actor, reason, fault);
    if (e == SM_OK && kind == SEMEL_STOP_TOOL)
        e = sm_circuit_close(s, name, actor, reason, &closed, fault);
    if (e == SM_OK)
        e = sm_board_release(s, kind_of(kind), name, bound, actor, reason, changed, fault);
    *changed = *changed || closed;
    return e;
}

semel_err semel_stop(semel *s, semel_stop_kind kind, semel_str name, semel_str actor,
                     semel_str reason, bool *changed, semel_fault *fault)
{
    return sm_stop(s, kind, name, actor, (sm_str){0}, reason, changed, fault);
}

semel_err semel_resume(semel *s, semel_stop_kind kind, semel_str name, semel_str actor,
                       semel_str reason, bool *changed, semel_fault *fault)
{
    return sm_resume(s, kind, name, actor, (sm_str){0}, reason, changed, fault);
}

semel_err semel_scope_reset(semel *s, semel_str scope, semel_str actor, semel_str reason,
                            bool *changed, semel_fault *fault)
{
    *changed = false;
    sm_err e = check(s, SM_HALT_LOOP, scope, &actor, reason, fault);
    /* What is known of the run goes first: else whoever asks in between finds it looping again. */
    bool counted = false, stopped = false;
    if (e == SM_OK)
        e = sm_runs_reset(s, scope, actor, reason, &counted, fault);
    if (e == SM_OK)
        e = sm_board_release(s, SM_HALT_LOOP, scope, (sm_str){0}, actor, reason, &stopped, fault);
    *changed = counted || stopped;
    return e;
}
