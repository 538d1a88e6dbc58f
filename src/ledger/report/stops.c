/* What is stopped, as JSON. */
#include "core/call.h"
#include "json/write.h"
#include "ledger/report/report.h"

static void put_halt(sm_buf *out, const sm_halt *h)
{
    sm_put_item(out);
    sm_buf_byte(out, '{');
    sm_halt_put(h, out);
    sm_put_stamp(out, "since", h->at);
    sm_buf_byte(out, '}');
}

/* Leaves the list open. */
static void put_halts(sm_buf *out, const char *name, const sm_board *board, sm_halt_filter *shown,
                      sm_str scope)
{
    sm_put_open(out, name, '[');
    for (uint32_t i = 0; i < board->n; i++) {
        if (shown(&board->halts[i], scope))
            put_halt(out, &board->halts[i]);
    }
}

void sm_halts_put(sm_buf *out, const char *name, const sm_board *board, sm_halt_filter *shown,
                  sm_str scope)
{
    put_halts(out, name, board, shown, scope);
    sm_buf_byte(out, ']');
}

/* Those in a scope, and those that stop it, or a tool for everybody. An absent scope: all. */
static bool concerns(const sm_halt *h, sm_str scope)
{
    bool named = h->kind == SM_HALT_SCOPE || h->kind == SM_HALT_LOOP;
    return scope.p == NULL || h->kind == SM_HALT_TOOL || sm_halt_covers(h, scope) ||
           (named && sm_scope_within(h->name, scope));
}

/* Circuits are of all scopes. */
static bool put_circuit(void *context, const semel_circuit *c)
{
    sm_buf *out = context;
    sm_put_item(out);
    sm_buf_byte(out, '{');
    sm_put_text(out, "kind", SM_STR("circuit"));
    sm_put_text(out, "tool", c->tool);
    sm_put_text(out, "upstream", c->upstream);
    sm_put_text(out, "tenant", c->tenant);
    sm_put_number(out, "failures", c->failures);
    sm_put_bool(out, "half_open", c->half_open);
    sm_put_signed(out, "retry_after_ms", c->retry_after_ms);
    sm_put_stamp(out, "since", c->since);
    sm_buf_byte(out, '}');
    return true;
}

semel_err semel_stops(semel *s, semel_str scope, semel_answer *a, semel_str *json)
{
    sm_work *w = sm_work_start(a);
    sm_board board;
    sm_err e = sm_report_scope(w, scope);
    if (e == SM_OK)
        e = sm_board_copy(s, &w->call, &board, &w->fault);
    sm_buf_clear(&w->json);
    if (e == SM_OK) {
        sm_buf_byte(&w->json, '{');
        put_halts(&w->json, "items", &board, concerns, scope);
        if (scope.p == NULL)
            e = semel_circuits(s, put_circuit, &w->json, &w->fault);
        sm_buf_text(&w->json, "]}");
    }
    return sm_report_end(w, a, e, json);
}
