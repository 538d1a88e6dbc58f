/* Problems for the clients of an API behind the gateway. */
#include "gateway/http/problem.h"

#include "api/problem.h"
#include "json/write.h"

int gw_proxied_status(int status)
{
    return status < 400 ? 403 : status; /* AWAITING_APPROVAL */
}

/* What is wrong and what to do are one text: such clients show no other. */
void gw_problem_add_error(sm_buf *out, const char *code, sm_str message, sm_str advice)
{
    if (out->err != SM_OK)
        return;
    out->len--; /* the brace: there is more */
    bool conflict = strcmp(code, "KEY_CONFLICT") == 0;
    sm_put_open(out, "error", '{');
    sm_problem_text(out, "type", conflict ? SM_STR("idempotency_error") : SM_STR("semel_error"));
    sm_problem_text(out, "code", sm_str_from(code));
    sm_buf both;
    sm_buf_init(&both, out->limit);
    sm_buf_str(&both, message.p != NULL ? message : sm_str_from(code));
    if (advice.n > 0) {
        bool ended = both.len > 0 && strchr(".!?", both.p[both.len - 1]) != NULL;
        sm_buf_text(&both, ended ? " " : ". ");
        sm_buf_str(&both, advice);
    }
    sm_problem_text(out, "message", sm_buf_view(&both));
    sm_buf_text(out, "}}");
    if (both.err != SM_OK)
        out->err = both.err;
    sm_buf_fini(&both);
}
