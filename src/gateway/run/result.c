/* The result of a run's exchange, kept beyond the callback: the outcome, and the headers for
 * whoever's call ran. */
#include "core/headers.h"
#include "gateway/run/returned.h"
#include "gateway/run/runs.h"
#include "json/write.h"

/* The body, unless it has been kept as it came. */
static void keep_body(gw_run *run, const sm_http_result *res)
{
    if (run->relay.began && res->complete) {
        run->cut = run->relay.bytes > run->body.len;
        return;
    }
    sm_buf_clear(&run->body);
    run->cut = res->cut;
    if (res->complete) {
        sm_buf_str(&run->body, res->body);
    } else {
        sm_buf_byte(&run->body, '{');
        sm_put_text(&run->body, "error", sm_str_from(run->why));
        sm_buf_byte(&run->body, '}');
    }
}

static void keep_headers(gw_run *run, const sm_http_result *res)
{
    sm_buf_clear(&run->headers);
    sm_buf_clear(&run->given);
    if (!res->complete)
        return;
    if (!run->ops->relays) {
        sm_headers_keep(res->headers, res->header_count, &run->headers);
        return;
    }
    gw_returned_record(res, &run->headers);
    gw_returned_keep(res, &run->given);
}

void gw_result_keep(gw_run *run, const sm_http_result *res)
{
    keep_body(run, res);
    keep_headers(run, res);
    run->late = res->timed_out;
    semel_outcome *o = &run->at.outcome;
    *o = (semel_outcome){.size = sizeof *o, .kind = run->ruling.kind};
    o->applied = o->kind == SEMEL_FAILURE ? run->ruling.applied : SEMEL_APPLIED_DEFAULT;
    o->status = res->complete ? res->status : 0;
    if (run->body.err != SM_OK)
        run->cut = true;
    o->value = run->body.len == 0 ? SM_STR("") : sm_buf_view(&run->body);
    if (res->complete && !run->cut)
        sm_upstream_spent(&run->arena, &run->up, o->value, o);
    /* There may be more, and nobody knows how much. */
    o->bytes = run->relay.began && run->cut ? run->relay.bytes : o->value.n + run->cut;
    if (run->headers.len > 0 && run->headers.err == SM_OK)
        o->headers = sm_buf_view(&run->headers);
}
