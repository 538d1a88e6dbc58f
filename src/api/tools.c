/*
 * The contracts in use, as far as callers need them. Where an upstream is and which
 * headers it gets is nobody's business but the operator's.
 */
#include "api/operation.h"
#include "base/duration.h"
#include "json/write.h"
#include "ledger/service.h"

static void put_duration(sm_buf *out, const char *name, int64_t ms)
{
    char text[SM_DURATION_TEXT];
    sm_duration_text(ms, text);
    sm_put_utf8(out, name, sm_str_from(text));
}

static void put_key(sm_buf *out, const sm_contract *c)
{
    const sm_pointers *lists[] = {&c->key.fields, &c->key.ignore, &c->key.match};
    static const char *const names[] = {"fields", "ignore", "match"};
    sm_put_open(out, "key", '{');
    sm_put_utf8(out, "strategy", sm_str_from(sm_strategy_name(sm_contract_strategy(c))));
    for (size_t i = 0; i < 3; i++) {
        if (lists[i]->n == 0)
            continue;
        sm_put_open(out, names[i], '[');
        for (uint32_t k = 0; k < lists[i]->n; k++) {
            sm_put_item(out);
            sm_json_put_string(out, lists[i]->v[k].text);
        }
        sm_buf_byte(out, ']');
    }
    sm_buf_byte(out, '}');
}

static void put_approval(sm_buf *out, const sm_contract *c)
{
    const sm_origin *origin = &c->origin[SM_F_APPROVAL];
    if (!c->approval.on)
        return;
    sm_put_open(out, "approval", '{');
    sm_put_number(out, "quorum", (uint64_t)c->approval.quorum);
    put_duration(out, "expires", c->approval.expires_ms);
    sm_put_bool(out, "self_approval", c->approval.self_approval);
    const sm_json *when = sm_json_find(origin->given, SM_STR("when"));
    if (when != NULL) {
        sm_put_name(out, "when");
        sm_json_canon(when, out, (sm_str){0}, NULL);
    }
    sm_buf_byte(out, '}');
}

static void put_contract(sm_buf *out, const sm_contract *c)
{
    static const char *const modes[] = {"enforce", "observe"};
    sm_put_utf8(out, "class", sm_str_from(sm_class_name(c->class)));
    if (c->description.n > 0)
        sm_put_utf8(out, "description", c->description);
    if (c->version.n > 0)
        sm_put_utf8(out, "version", c->version);
    sm_put_utf8(out, "mode", sm_str_from(modes[c->mode]));
    sm_put_bool(out, "upstream", c->upstream.url.n > 0);
    put_key(out, c);
    if (c->class != SM_CLASS_READ)
        put_duration(out, "window", c->window_ms);
    put_approval(out, c);
    const sm_json *input = c->origin[SM_F_INPUT].given;
    if (input != NULL) {
        sm_put_name(out, "input");
        sm_json_canon(input, out, (sm_str){0}, NULL);
    }
    if (c->variant_count > 0)
        sm_put_number(out, "variants", c->variant_count);
}

void sm_api_tools(sm_operation *op, semel_answer *a)
{
    static const char *const unlisted[] = {"write", "hold", "hide"};
    if (!sm_op_parameters(op, NULL, 0, NULL))
        return;
    const sm_contracts *set = sm_contracts_now(op->ledger, a);
    sm_page p;
    sm_page_start(&p);
    for (uint32_t i = 0; i < set->tool_count; i++) {
        const sm_declared_tool *t = &set->tools[i];
        sm_page_item(&p);
        sm_buf_byte(&p.out, '{');
        sm_put_utf8(&p.out, "name", t->name);
        if (t->glob)
            sm_put_bool(&p.out, "pattern", true);
        put_contract(&p.out, &t->contract);
        sm_buf_byte(&p.out, '}');
    }
    sm_buf_byte(&p.out, ']');
    sm_put_utf8(&p.out, "unlisted", sm_str_from(unlisted[set->unlisted]));
    sm_buf_byte(&p.out, '}');
    sm_op_json(op, a, &p.out);
    sm_buf_fini(&p.out);
}
