/*
 * Requests: which operation of the JSON language is meant, and what it is about.
 *
 * What stands in the path of a URL over HTTP is a member here. The door takes these members, and
 * `op`, out of what the operation reads.
 */
#include "api/operation.h"
#include "base/suggest.h"
#include "flat/inside.h"
#include "ledger/service.h"

#define WAIT_MAX_MS ((int64_t)24 * 3600 * 1000)

/* ---- the door --------------------------------------------------------------------------------*/

static void tell_answer(sm_operation *op, const semel_answer *a)
{
    fl_operation *o = fl_operation_of(op);
    fl_deliver_answer(&o->core->port, o->client, a);
}

static void tell_json(sm_operation *op, sm_str json)
{
    fl_operation *o = fl_operation_of(op);
    fl_deliver_text(&o->core->port, o->client, json);
}

static void tell_problem(sm_operation *op, int status, const char *code, const char *advice,
                         const char *message)
{
    fl_operation *o = fl_operation_of(op);
    fl_deliver_problem(&o->core->port, o->client, status, code, advice, message);
}

static bool end_here(sm_operation *op, sm_str claim, const semel_outcome *outcome)
{
    fl_operation *o = fl_operation_of(op);
    return fl_end_held(o->core, o->client, claim, outcome);
}

static const sm_door door = {
    .answer = tell_answer, .json = tell_json, .problem = tell_problem, .ends = end_here};

/* ---- operations ------------------------------------------------------------------------------*/

static sm_api_fn on_begin, on_passed;

/* What it is about, and whether a person says it. */
enum { NOTHING, EFFECT, SCOPE, MAYBE_EFFECT, ABOUT = 7, PERSON = 8 };

static const struct operation {
    const char *name;
    sm_api_fn *fn;
    int about;
} operations[] = {
    {"begin", on_begin, NOTHING},
    {"commit", sm_api_commit, NOTHING},
    {"renew", sm_api_renew, NOTHING},
    {"release", sm_api_release, NOTHING},
    {"passed", on_passed, NOTHING},
    {"effect", sm_api_effect, EFFECT},
    {"effects", sm_api_effects, NOTHING},
    {"events", sm_api_events, MAYBE_EFFECT},
    {"approvals", sm_api_approvals, NOTHING},
    {"approve", sm_api_approve, EFFECT | PERSON},
    {"deny", sm_api_deny, EFFECT | PERSON},
    {"cancel", sm_api_cancel, EFFECT | PERSON},
    {"resolve", sm_api_resolve, EFFECT | PERSON},
    {"forget", sm_api_forget, EFFECT | PERSON},
    {"tools", sm_api_tools, NOTHING},
    {"declare", fl_on_declare, NOTHING},
    {"key", fl_on_key, NOTHING},
    {"scopes", sm_api_scopes, NOTHING},
    {"scope", sm_api_scope, SCOPE},
    {"reset", sm_api_reset, SCOPE | PERSON},
    {"undo_plan", sm_api_undo_plan, SCOPE},
    {"spend", sm_api_spend, NOTHING},
    {"stops", sm_api_stops, NOTHING},
    {"stop", sm_api_stop, NOTHING | PERSON},
    {"resume", sm_api_resume, NOTHING | PERSON},
    {"loop_new", fl_on_loop_new, NOTHING},
    {"loop_add", fl_on_loop_add, NOTHING},
    {"loop_free", fl_on_loop_free, NOTHING},
    {"export", fl_on_export, NOTHING},
    {"import", fl_on_import, NOTHING},
    {"stats", fl_on_stats, NOTHING},
    {"verify", fl_on_verify, NOTHING},
    {"purge", fl_on_purge, NOTHING},
    {"seal", fl_on_seal, NOTHING},
};
#define OPERATIONS (sizeof operations / sizeof *operations)

/* Members that are the door's. */
static const char *const taken[][6] = {
    [NOTHING] = {"op"},
    [EFFECT] = {"op", "effect"},
    [SCOPE] = {"op", "scope"},
    [MAYBE_EFFECT] = {"op", "effect"},
    [NOTHING | PERSON] = {"op", "actor"},
    [EFFECT | PERSON] = {"op", "effect", "actor"},
    [SCOPE | PERSON] = {"op", "scope", "actor"},
};

static const struct operation *find(sm_str name)
{
    for (size_t i = 0; i < OPERATIONS; i++)
        if (sm_str_is(name, operations[i].name))
            return &operations[i];
    return NULL;
}

static void refuse_op(sm_operation *op, const sm_json *name)
{
    static const char advice[] = "semel/flat.h lists the operations.";
    sm_nearest nearest = {0};
    if (name == NULL || name->type != SM_JSON_STRING) {
        sm_op_problem(op, 400, "BAD_ARGUMENTS", advice, "\"op\" is missing, or is not a string");
        return;
    }
    sm_str wrong = sm_json_text(name);
    for (size_t i = 0; i < OPERATIONS; i++)
        sm_nearest_try(&nearest, wrong, sm_str_from(operations[i].name));
    sm_str near = sm_nearest_get(&nearest, wrong);
    sm_op_problem(op, 400, "BAD_ARGUMENTS", advice,
                  near.p != NULL ? "\"%.*s\" is not an operation; did you mean \"%.*s\"?"
                                 : "\"%.*s\" is not an operation%.*s",
                  SM_FMT(sm_quoted(wrong)), SM_FMT(near));
}

/* A member that the door reads itself: a string. False: it is something else, and was refused. */
static bool read_text(fl_operation *o, const char *name, sm_str *out)
{
    const sm_json *v = sm_json_find(o->object.node, sm_str_from(name));
    *out = v != NULL && v->type == SM_JSON_STRING ? sm_json_text(v) : (sm_str){0};
    if (v == NULL || v->type == SM_JSON_STRING)
        return true;
    sm_op_problem(&o->op, 400, "BAD_ARGUMENTS", "Correct the request.", "\"%s\" must be a string",
                  name);
    return false;
}

/* An effect that is named by its key instead of a handle: the text of the key, or the scope and the
 * key that its caller gave. */
static bool find_effect(fl_operation *o, sm_str text, semel_answer *a)
{
    sm_str scope = {0}, key = {0};
    if (text.p == NULL && !(read_text(o, "scope", &scope) && read_text(o, "key", &key)))
        return false;
    const semel_name name = {.size = sizeof name, .text = text, .scope = scope, .key = key};
    if (semel_get(o->op.ledger, &name, a) != SEMEL_OK) {
        o->op.door->answer(&o->op, a);
        return false;
    }
    o->op.name = sm_arena_text(o->op.arena, a->effect);
    return true;
}

/* What the operation is about. An effect may be named by one of its requests, too. */
static bool read_name(fl_operation *o, const struct operation *what, semel_answer *a)
{
    static const char *const by_key[] = {"op", "scope", "key", NULL};
    int about = what->about & ABOUT;
    sm_str text = {0};
    if ((what->about & PERSON) != 0 && !read_text(o, "actor", &o->op.actor))
        return false;
    if (about == NOTHING)
        return true;
    if (!read_text(o, about == SCOPE ? "scope" : "effect", &text) ||
        (about == EFFECT && text.p == NULL && !read_text(o, "request", &text)))
        return false;
    o->op.name = text;
    if (text.p != NULL && about != SCOPE && text.n == SM_HASH_TEXT)
        return find_effect(o, text, a);
    if (text.p != NULL || about == MAYBE_EFFECT)
        return true;
    if (what->fn == sm_api_effect && sm_json_find(o->object.node, SM_STR("key")) != NULL) {
        o->op.taken = by_key;
        return find_effect(o, text, a);
    }
    sm_op_problem(&o->op, 400, "BAD_ARGUMENTS", "Correct the request.", "\"%s\" is missing",
                  about == EFFECT ? "effect" : "scope");
    return false;
}

static bool parse(fl_operation *o, sm_str text, fl_own *own)
{
    sm_fault fault = {0};
    sm_arena_reset(&own->arena);
    o->op = (sm_operation){.door = &door,
                           .ledger = o->core->ledger,
                           .waits = o->core->waits,
                           .arena = &own->arena,
                           .body = text};
    if (sm_object_parse(&own->arena, text, &o->object, &fault) == SM_OK)
        return true;
    sm_op_refuse(&o->op, &fault);
    return false;
}

void fl_operate(fl_core *c, fl_client *client, sm_str text, fl_own *own)
{
    fl_operation o = {.core = c, .client = client};
    if (!parse(&o, text, own))
        return;
    const sm_json *op = sm_json_find(o.object.node, SM_STR("op"));
    const struct operation *what =
        op != NULL && op->type == SM_JSON_STRING ? find(sm_json_text(op)) : NULL;
    if (what == NULL) {
        refuse_op(&o.op, op);
        return;
    }
    o.op.taken = taken[what->about];
    if (read_name(&o, what, own->answer))
        what->fn(&o.op, own->answer);
}

/* ---- calls -----------------------------------------------------------------------------------*/

static bool read_call(fl_operation *o, semel_call *call, bool *detached, sm_fault *fault)
{
    static const char *const passed_over[] = {"op", "detached", NULL};
    o->object.taken = passed_over;
    const sm_json *v = sm_json_find(o->object.node, SM_STR("detached"));
    *detached = v != NULL && v->type == SM_JSON_TRUE;
    if (v != NULL && v->type != SM_JSON_TRUE && v->type != SM_JSON_FALSE) {
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "\"detached\" must be true or false");
        return false;
    }
    return sm_call_read(o->op.arena, &o->object, SM_FORM_BEGIN, WAIT_MAX_MS, call, fault) == SM_OK;
}

static void on_begin(sm_operation *op, semel_answer *a)
{
    fl_operation *o = fl_operation_of(op);
    sm_fault fault = {0};
    semel_call call;
    bool detached;
    if (!read_call(o, &call, &detached, &fault))
        sm_op_refuse(op, &fault);
    else if (!fl_begin_known(o->core, o->client, &call, a))
        fl_begin(o->core, o->client, &call, detached);
}

bool fl_operate_known(fl_core *c, fl_client *client, sm_str text, fl_own *own)
{
    fl_operation o = {.core = c, .client = client};
    static const char begins[] = "{\"op\":\"begin\"";
    if (text.n < sizeof begins || memcmp(text.p, begins, sizeof begins - 1) != 0)
        return false;
    sm_arena_reset(&own->arena);
    o.op.arena = &own->arena;
    sm_fault fault = {0};
    semel_call call;
    bool detached;
    return sm_object_parse(&own->arena, text, &o.object, &fault) == SM_OK &&
           read_call(&o, &call, &detached, &fault) && fl_begin_known(c, client, &call, own->answer);
}

/* ---- calls that run unrecorded ---------------------------------------------------------------*/

typedef struct passed_body {
    sm_str pass, scope, tool, value;
} passed_body;

/* How a call has ended that nothing is recorded of: its run may repeat itself. */
static void on_passed(sm_operation *op, semel_answer *a)
{
#define MEMBER(n) .name = #n, .offset = offsetof(passed_body, n)
    static const sm_object_member members[] = {
        {MEMBER(pass), .kind = SM_M_TEXT, .required = true},
        {MEMBER(scope), .kind = SM_M_TEXT, .required = true},
        {MEMBER(tool), .kind = SM_M_TEXT, .required = true},
        {MEMBER(value), .kind = SM_M_ANY},
    };
    passed_body b = {0};
    uint64_t number;
    if (!sm_op_body(op, members, sizeof members / sizeof *members, &b))
        return;
    if (!sm_cursor_parse(b.pass, &number)) {
        sm_op_problem(op, 400, "BAD_ARGUMENTS", "Give back what the answer of the begin said.",
                      "\"pass\" is not a number");
        return;
    }
    const sm_passed passed = {.call = number, .scope = b.scope, .tool = b.tool};
    const semel_outcome outcome = {.size = sizeof outcome, .value = b.value};
    *a = (semel_answer){.work = a->work};
    sm_pass_ended(op->ledger, &passed, &outcome, a);
    a->verdict = SEMEL_DONE;
    tell_answer(op, a);
}
