/* Following the ledger: whose an effect is, and waiting for whatever comes next. */
#include "ledger/work/ledger.h"

#include <stdlib.h>

sm_err sm_scope_of(semel *s, const sm_handle *effect, semel_answer *a, sm_str *scope,
                   sm_fault *fault)
{
    sm_work *w = sm_work_start(a);
    sm_recalled *known = sm_recall_find(&s->recall, effect->id);
    if (known != NULL) { /* also if the ledger has lost it: who has its claim may end it */
        *scope = sm_work_copy(w, known->record.scope);
        free(known);
        return scope->p == NULL ? SEMEL_E_NOMEM : SM_OK;
    }
    sm_err e = sm_load_handle(s, w, effect, true);
    *scope = e == SM_OK ? w->cur.scope : (sm_str){0};
    if (e != SM_OK)
        *fault = w->fault;
    return e;
}

bool sm_wait_events(semel *s, uint64_t after, int64_t deadline_ns)
{
    return s->ops->wait(s->store, NULL, after, deadline_ns, NULL) == SM_OK;
}
