/* One place for each of these rules, which several stores keep. */
#include "store/shared/copy.h"

#include <string.h>

size_t sm_record_bytes(const semel_record *r)
{
    return r->scope.n + r->step.n + r->tool.n + r->caller.n + r->args.n + r->life.n + r->outcome.n;
}

semel_err sm_record_copy(const semel_record *from, semel_room *room, semel_record *to)
{
    size_t n = sm_record_bytes(from);
    char *p = n == 0 ? NULL : room->alloc(room, n);
    if (n > 0 && p == NULL)
        return SEMEL_E_NOMEM;
    *to = *from;
    semel_str *const texts[] = {&to->scope, &to->step, &to->tool,   &to->caller,
                                &to->args,  &to->life, &to->outcome};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i]->p == NULL)
            continue;
        if (texts[i]->n == 0) {
            texts[i]->p = ""; /* what it pointed to is borrowed */
            continue;
        }
        memcpy(p, texts[i]->p, texts[i]->n);
        texts[i]->p = p;
        p += texts[i]->n;
    }
    return SEMEL_OK;
}

int64_t sm_record_next_purge(const semel_record *r)
{
    int64_t at = INT64_MAX;
    if (r->state != SEMEL_S_NONE && !semel_state_settled(r->state))
        return at;
    if (r->outcome.p != NULL && r->result_end > 0)
        at = r->result_end;
    if ((r->outcome.p != NULL || r->args.p != NULL) && r->window_end > 0 && r->window_end < at)
        at = r->window_end;
    if (r->purge_at > 0 && r->purge_at < at)
        at = r->purge_at;
    return at;
}

bool sm_write_follows(const semel_write *w, const semel_hash *head)
{
    return w->next.generation != w->expect_generation ||
           memcmp(&w->event.prev, head, sizeof *head) == 0;
}
