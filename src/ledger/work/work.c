/* Workspaces. */
#include "ledger/work/work.h"

#include <stdlib.h>

#include "base/limits.h"
#include "ledger/service.h"

/* Rooms of a record: the arguments and the outcome at most, and their names. */
#define HELD_MAX (4 * (size_t)SM_ARENA_MAX)

static void *held_alloc(semel_room *room, size_t n)
{
    return sm_arena_alloc(&((sm_work *)room)->held, n);
}

semel_answer *semel_answer_new(void)
{
    semel_answer *a = calloc(1, sizeof *a);
    sm_work *w = calloc(1, sizeof *w);
    if (a == NULL || w == NULL || sm_keyer_init(&w->keyer) != SM_OK) {
        free(a);
        free(w);
        return NULL;
    }
    a->work = w;
    w->room.alloc = held_alloc;
    sm_arena_init(&w->call, SM_ARENA_MAX);
    sm_arena_init(&w->held, HELD_MAX);
    sm_buf *const bufs[] = {&w->life, &w->outcome, &w->args, &w->body,
                            &w->what, &w->scratch, &w->json};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        sm_buf_init(bufs[i], HELD_MAX);
    return a;
}

void semel_answer_free(semel_answer *a)
{
    if (a == NULL)
        return;
    sm_work *w = a->work;
    sm_buf *const bufs[] = {&w->life, &w->outcome, &w->args, &w->body,
                            &w->what, &w->scratch, &w->json};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        sm_buf_fini(bufs[i]);
    sm_contracts_free(w->contracts);
    free(w->recalled);
    sm_arena_fini(&w->call);
    sm_arena_fini(&w->held);
    sm_keyer_fini(&w->keyer);
    free(w);
    free(a);
}

sm_work *sm_work_start(semel_answer *a)
{
    sm_work *w = a->work;
    *a = (semel_answer){.work = w};
    sm_arena_reset(&w->call);
    sm_arena_reset(&w->held);
    w->cur.version = 0;
    free(w->recalled);
    w->recalled = NULL;
    w->budget_warning = (sm_str){0};
    w->fault.code = SM_OK;
    w->fault.text[0] = '\0';
    return w;
}

void sm_answer_rest(semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    sm_buf *const bufs[] = {&w->life, &w->outcome, &w->args, &w->body,
                            &w->what, &w->scratch, &w->json};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++) {
        if (bufs[i]->cap > SM_KEPT_BYTES) {
            sm_buf_fini(bufs[i]);
            sm_buf_init(bufs[i], HELD_MAX);
        }
    }
}

sm_str sm_work_copy(sm_work *w, sm_str s)
{
    if (s.p == NULL)
        return s;
    char *p = sm_arena_alloc(&w->call, s.n + 1);
    if (p == NULL)
        return (sm_str){0};
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    p[s.n] = '\0';
    return (sm_str){p, s.n};
}
