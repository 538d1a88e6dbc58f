/*
 * Contracts that are declared while the ledger is open, by programs that say in their code what
 * their tools are.
 *
 * The ledger holds one set of contracts. So what it was opened with is kept as JSON, what was
 * declared since stands beside it, and each declaration makes a set of both. A tool is declared
 * once: the same again changes nothing, and another contract for it is refused.
 */
#include <stdlib.h>

#include "api/operation.h"
#include "base/file.h"
#include "base/limits.h"
#include "core/contract.h"
#include "flat/inside.h"
#include "json/canon.h"
#include "json/write.h"
#include "json/yaml.h"
#include "ledger/service.h"

/* ---- what it was opened with -----------------------------------------------------------------*/

sm_err fl_declare_start(fl_core *c, const semel_options *o, sm_fault *fault)
{
    sm_buf_init(&c->base, SM_CONTRACT_BYTES_MAX);
    if (o->contract_path != NULL && o->contract.p != NULL)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "\"contract\" and \"contract_path\" exclude each other");
    if (o->contract_path == NULL || o->contract.p != NULL) {
        sm_buf_str(&c->base, o->contract);
        return c->base.err;
    }
    return sm_file_read(o->contract_path, SM_CONTRACT_BYTES_MAX, &c->base, fault);
}

void fl_declare_stop(fl_core *c)
{
    sm_buf_fini(&c->base);
    free(atomic_load(&c->declared));
}

/* ---- declaring -------------------------------------------------------------------------------*/

static sm_err read_tree(sm_arena *a, sm_str text, const sm_json **root, sm_fault *fault)
{
    *root = NULL;
    return text.n == 0 ? SM_OK : sm_tree_read(a, SM_STR("contract"), text, root, fault);
}

static const sm_json *tools_of(const sm_json *root)
{
    const sm_json *tools =
        root != NULL && root->type == SM_JSON_OBJECT ? sm_json_find(root, SM_STR("tools")) : NULL;
    return tools != NULL && tools->type == SM_JSON_OBJECT ? tools : NULL;
}

/* Behind whatever stands before it in the object. */
static void put_comma(sm_buf *out)
{
    if (out->len > 0 && out->p[out->len - 1] != '{')
        sm_buf_byte(out, ',');
}

static void put_member(sm_buf *out, const sm_json *name)
{
    put_comma(out);
    sm_json_put_string(out, sm_json_text(name));
    sm_buf_byte(out, ':');
    sm_json_canon(name + 1, out, (sm_str){0}, NULL);
}

static void put_members(sm_buf *out, const sm_json *object, const char *but)
{
    const sm_json *name = object + 1;
    for (uint32_t i = 0; i < object->len; i++, name = sm_json_next(name + 1))
        if (but == NULL || !sm_str_is(sm_json_text(name), but))
            put_member(out, name);
}

static bool equal(const sm_json *one, const sm_json *other)
{
    sm_buf x, y;
    sm_buf_init(&x, SM_CONTRACT_BYTES_MAX);
    sm_buf_init(&y, SM_CONTRACT_BYTES_MAX);
    sm_json_canon(one, &x, (sm_str){0}, NULL);
    sm_json_canon(other, &y, (sm_str){0}, NULL);
    bool same = x.err == SM_OK && y.err == SM_OK && sm_str_eq(sm_buf_view(&x), sm_buf_view(&y));
    sm_buf_fini(&x);
    sm_buf_fini(&y);
    return same;
}

/* Adds those of `tools` that are new to the members in `all`. `listed`: those that these contracts
 * list already, by name or by pattern, are left alone. */
static sm_err add_new(const sm_json *tools, const sm_json *known[2], const sm_contracts *listed,
                      sm_buf *all, bool *more, sm_fault *fault)
{
    const sm_json *name = tools + 1;
    for (uint32_t i = 0; i < tools->len; i++, name = sm_json_next(name + 1)) {
        const sm_json *there = NULL;
        for (size_t k = 0; k < 2 && there == NULL; k++)
            there = known[k] == NULL ? NULL : sm_json_find(known[k], sm_json_text(name));
        if (listed != NULL && sm_contracts_tool(listed, sm_json_text(name)) != NULL)
            continue;
        if (there == NULL) {
            put_member(all, name);
            *more = true;
        } else if (!equal(there, name + 1)) {
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                "the tool %.*s has another contract already: declare it once, in "
                                "the contract file or in the program",
                                SM_FMT(sm_json_text(name)));
        }
    }
    return SM_OK;
}

/* The first thing that is wrong. */
static sm_err wrong(const sm_report *report, sm_err e, sm_fault *fault)
{
    for (uint32_t i = 0; i < report->count; i++)
        if (report->items[i].severity == SM_ERROR)
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "%.*s",
                                SM_FMT(report->items[i].text));
    return fault->text[0] != '\0' ? e : sm_fault_set(fault, e, "%s", semel_err_text(e));
}

static sm_err replace(semel *s, sm_str text, sm_fault *fault)
{
    sm_report report;
    sm_err e = sm_report_init(&report, text);
    if (e == SM_OK)
        e = sm_contracts_replace(s, SM_STR("contract"), text, &report, fault);
    if (e != SM_OK)
        e = wrong(&report, e, fault);
    sm_report_fini(&report);
    return e;
}

static sm_err declare(fl_core *c, sm_arena *a, const sm_json *tools, const sm_contracts *listed,
                      sm_fault *fault)
{
    const sm_json *base, *declared;
    sm_buf added, all;
    bool more = false;
    sm_buf_init(&added, SM_CONTRACT_BYTES_MAX);
    sm_buf_init(&all, SM_CONTRACT_BYTES_MAX);
    sm_err e = read_tree(a, sm_buf_view(&c->base), &base, fault);
    if (e == SM_OK)
        e = read_tree(a, sm_str_from(atomic_load(&c->declared)), &declared, fault);
    if (e != SM_OK)
        goto cleanup;
    sm_buf_byte(&added, '{');
    if (declared != NULL)
        put_members(&added, declared, NULL);
    const sm_json *known[] = {tools_of(base), declared};
    e = add_new(tools, known, listed, &added, &more, fault);
    sm_buf_byte(&added, '}');
    if (e != SM_OK || !more)
        goto cleanup;
    sm_buf_byte(&all, '{');
    if (base != NULL && base->type == SM_JSON_OBJECT)
        put_members(&all, base, "tools");
    else
        sm_put_number(&all, "version", 1);
    sm_put_open(&all, "tools", '{');
    if (known[0] != NULL)
        put_members(&all, known[0], NULL);
    if (added.len > 2) {
        put_comma(&all);
        sm_buf_bytes(&all, added.p + 1, added.len - 2);
    }
    sm_buf_text(&all, "}}");
    char *kept = added.err == SM_OK ? strndup(added.p, added.len) : NULL;
    e = all.err != SM_OK ? sm_fault_set(fault, all.err, "the contracts are too large together")
        : kept == NULL   ? sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory")
                         : replace(c->ledger, sm_buf_view(&all), fault);
    if (e == SM_OK)
        kept = atomic_exchange(&c->declared, kept);
    free(kept);
cleanup:
    sm_buf_fini(&added);
    sm_buf_fini(&all);
    return e;
}

sm_err fl_declare_again(fl_core *c, sm_arena *a, const char *tools, sm_fault *fault)
{
    const sm_json *object;
    sm_err e = read_tree(a, sm_str_from(tools), &object, fault);
    return e == SM_OK ? declare(c, a, object, NULL, fault) : e;
}

typedef struct declare_body {
    sm_object tools;
    bool unless_listed;
} declare_body;

void fl_on_declare(sm_operation *op, semel_answer *a)
{
#define MEMBER(n) .name = #n, .offset = offsetof(declare_body, n)
    static const sm_object_member members[] = {
        {MEMBER(tools), .kind = SM_M_OBJECT, .required = true},
        {MEMBER(unless_listed), .kind = SM_M_BOOL},
    };
    fl_operation *o = fl_operation_of(op);
    declare_body b = {0};
    sm_fault fault = {0};
    if (!sm_op_body(op, members, sizeof members / sizeof *members, &b))
        return;
    pthread_mutex_lock(&o->core->declaring);
    sm_err e = declare(o->core, op->arena, b.tools.node,
                       b.unless_listed ? sm_contracts_now(op->ledger, a) : NULL, &fault);
    pthread_mutex_unlock(&o->core->declaring);
    if (e == SM_OK)
        op->door->json(op, SM_STR("{\"declared\":true}"));
    else
        sm_op_refuse(op, &fault);
}
