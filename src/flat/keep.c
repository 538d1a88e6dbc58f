/* Checkpoints, keys, and what keeps a ledger: operations that HTTP does not have. */
#include <sys/random.h>

#include "api/operation.h"
#include "core/identity.h"
#include "flat/inside.h"
#include "json/canon.h"
#include "json/write.h"
#include "ledger/service.h"

/* What was written so far is the answer, unless something was wrong. */
static void reply(fl_operation *o, semel_answer *a, sm_err e, const sm_fault *fault)
{
    if (e == SM_OK) {
        fl_deliver(&o->core->port, o->client);
    } else {
        sm_buf_clear(&o->client->answer);
        sm_op_fault(&o->op, a, e, fault);
    }
}

/* ---- checkpoints -----------------------------------------------------------------------------*/

static bool put_line(void *context, sm_str line)
{
    sm_buf *out = context;
    while (line.n > 0 && line.p[line.n - 1] == '\n')
        line.n--;
    sm_put_item(out);
    sm_json_put_string(out, line);
    return out->err == SM_OK;
}

typedef struct export_body {
    sm_str scope;
} export_body;

void fl_on_export(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {
        {.name = "scope", .kind = SM_M_TEXT, .offset = offsetof(export_body, scope)}};
    fl_operation *o = fl_operation_of(op);
    export_body b = {0};
    sm_fault fault = {0};
    sm_buf *out = &o->client->answer;
    if (!sm_op_body(op, members, 1, &b))
        return;
    sm_buf_byte(out, '{');
    sm_put_open(out, "lines", '[');
    sm_err e = semel_export(op->ledger, b.scope, put_line, out, &fault);
    sm_buf_text(out, "]}");
    if (e == SM_OK && out->err != SM_OK)
        e = sm_fault_set(&fault, SEMEL_E_LIMIT,
                         "this is too much for one answer: name a scope, or use semel export");
    reply(o, a, e, &fault);
}

void fl_on_import(sm_operation *op, semel_answer *a)
{
    fl_operation *o = fl_operation_of(op);
    const sm_json *lines = sm_json_find(o->object.node, SM_STR("lines"));
    semel_imported count = {.size = sizeof count};
    sm_fault fault = {0};
    sm_err e = SM_OK;
    sm_buf *out = &o->client->answer;
    if (lines == NULL || lines->type != SM_JSON_ARRAY)
        e = sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS,
                         "\"lines\" is missing, or is not a list of strings");
    const sm_json *line = e == SM_OK ? lines + 1 : NULL;
    for (uint32_t i = 0; e == SM_OK && i < lines->len; i++, line = sm_json_next(line))
        e = line->type == SM_JSON_STRING
                ? semel_import_line(op->ledger, sm_json_text(line), &count, &fault)
                : sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS, "line %u is not a string", i + 1);
    sm_buf_byte(out, '{');
    sm_put_number(out, "lines", count.lines);
    sm_put_number(out, "added", count.added);
    sm_put_number(out, "kept", count.kept);
    sm_buf_byte(out, '}');
    reply(o, a, e, &fault);
}

/* ---- keys ------------------------------------------------------------------------------------*/

static sm_err put_key(sm_operation *op, const semel_call *call, semel_answer *a, sm_buf *out,
                      sm_fault *fault)
{
    sm_keyer keyer;
    uint8_t nonce[SM_NONCE_BYTES];
    sm_identity id;
    sm_parsed_call parsed = {
        .scope = call->scope, .step = call->step, .tool = call->tool, .key = call->key};
    sm_err e = sm_json_read(op->arena, call->args, &sm_json_default_limits, &parsed.args, fault);
    parsed.args_text = call->args;
    if (e == SM_OK)
        e = sm_call_check(&parsed, fault);
    if (e == SM_OK && getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        e = sm_fault_set(fault, SEMEL_E_CRYPTO, "the system gives no random bytes");
    if (e != SM_OK)
        return e;
    e = sm_keyer_init(&keyer);
    if (e == SM_OK)
        e = sm_identify(op->arena, &keyer, sm_contracts_now(op->ledger, a), &parsed, nonce, &id,
                        fault);
    if (e == SM_OK) {
        sm_buf_byte(out, '{');
        if (id.strategy != SM_KEY_NONE)
            sm_put_hash(out, "key", &id.key.hash);
        sm_put_text(out, "strategy", sm_str_from(sm_strategy_name((int)id.strategy)));
        sm_put_text(out, "class", sm_str_from(sm_class_name(id.contract->class)));
        sm_put_name(out, "args");
        sm_json_canon(id.filled, out, call->args, NULL);
        sm_buf_byte(out, '}');
    }
    sm_keyer_fini(&keyer);
    return e;
}

void fl_on_key(sm_operation *op, semel_answer *a)
{
    fl_operation *o = fl_operation_of(op);
    sm_fault fault = {0};
    semel_call call;
    sm_buf *out = &o->client->answer;
    o->object.taken = op->taken;
    sm_err e = sm_call_read(op->arena, &o->object, SM_FORM_BEGIN, 0, &call, &fault);
    if (e == SM_OK)
        e = put_key(op, &call, a, out, &fault);
    reply(o, a, e, &fault);
}

/* ---- keeping ---------------------------------------------------------------------------------*/

void fl_on_stats(sm_operation *op, semel_answer *a)
{
    fl_operation *o = fl_operation_of(op);
    semel_stats s = {.size = sizeof s};
    sm_fault fault = {0};
    sm_buf *out = &o->client->answer;
    if (!sm_op_body(op, NULL, 0, NULL))
        return;
    sm_err e = semel_stats_get(op->ledger, false, &s, &fault);
    sm_buf_byte(out, '{');
    sm_put_number(out, "begins", s.begins);
    sm_put_number(out, "executes", s.executes);
    sm_put_number(out, "replays", s.replays);
    sm_put_number(out, "refused", s.refused);
    sm_put_number(out, "waits", s.waits);
    sm_put_number(out, "commits", s.commits);
    sm_put_text(out, "server", sm_str_from(s.store.server));
    sm_put_text(out, "version", sm_str_from(semel_version()));
    sm_buf_byte(out, '}');
    reply(o, a, e, &fault);
}

static bool put_flaw(void *context, semel_str text)
{
    sm_buf *out = context;
    sm_put_item(out);
    sm_json_put_string(out, text);
    return out->err == SM_OK;
}

void fl_on_verify(sm_operation *op, semel_answer *a)
{
    fl_operation *o = fl_operation_of(op);
    semel_verified v = {.size = sizeof v};
    sm_fault fault = {0};
    sm_buf *out = &o->client->answer;
    if (!sm_op_body(op, NULL, 0, NULL))
        return;
    sm_buf_byte(out, '{');
    sm_put_open(out, "flaws", '[');
    sm_err e = semel_verify(op->ledger, put_flaw, NULL, out, &v, &fault);
    sm_buf_byte(out, ']');
    sm_put_number(out, "events", v.events);
    sm_put_number(out, "effects", v.effects);
    sm_put_number(out, "seals", v.seals);
    sm_put_number(out, "unsealed", v.unsealed);
    sm_put_number(out, "unkeyed", v.unkeyed);
    sm_buf_byte(out, '}');
    reply(o, a, e, &fault);
}

void fl_on_purge(sm_operation *op, semel_answer *a)
{
    fl_operation *o = fl_operation_of(op);
    uint64_t done = 0;
    sm_fault fault = {0};
    sm_buf *out = &o->client->answer;
    if (!sm_op_body(op, NULL, 0, NULL))
        return;
    sm_err e = semel_purge(op->ledger, NULL, NULL, &done, &fault);
    sm_buf_byte(out, '{');
    sm_put_number(out, "done", done);
    sm_buf_byte(out, '}');
    reply(o, a, e, &fault);
}

void fl_on_seal(sm_operation *op, semel_answer *a)
{
    fl_operation *o = fl_operation_of(op);
    sm_fault fault = {0};
    sm_buf *out = &o->client->answer;
    if (!sm_op_body(op, NULL, 0, NULL))
        return;
    sm_err e = semel_seal(op->ledger, &fault);
    sm_buf_text(out, "{\"sealed\":true}");
    reply(o, a, e, &fault);
}
