/* Loop detectors of their own, for programs whose runs are in no ledger (semel_loop in semel.h).
 * They are numbered, because a text cannot hold a pointer. */
#include <stdlib.h>

#include "api/operation.h"
#include "base/limits.h"
#include "flat/inside.h"
#include "json/write.h"

#define LOOPS_MAX 100000u

struct fl_loop {
    uint64_t number;
    semel_loop *loop;
    fl_loop *next;
};

static fl_loop **place_of(fl_loops *l, uint64_t number)
{
    fl_loop **at = &l->bucket[number % FL_LOOP_BUCKETS];
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

void fl_loops_fini(fl_loops *l)
{
    for (size_t i = 0; i < FL_LOOP_BUCKETS; i++) {
        for (fl_loop *x = l->bucket[i], *next; x != NULL; x = next) {
            next = x->next;
            semel_loop_free(x->loop);
            free(x);
        }
    }
    pthread_mutex_destroy(&l->lock);
}

/* ---- making ----------------------------------------------------------------------------------*/

typedef struct new_body {
    int64_t repeats, max_cycle;
} new_body;

static sm_err make(fl_loops *l, const new_body *b, uint64_t *number, sm_fault *fault)
{
    const semel_loop_options options = {.size = sizeof options,
                                        .repeats = (uint32_t)b->repeats,
                                        .max_cycle = (uint32_t)b->max_cycle};
    fl_loop *x = calloc(1, sizeof *x);
    if (x == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_err e = semel_loop_new(&options, &x->loop, fault);
    pthread_mutex_lock(&l->lock);
    if (e == SM_OK && l->count >= LOOPS_MAX)
        e = sm_fault_set(fault, SEMEL_E_LIMIT,
                         "there are %u detectors: free those of runs that ended", LOOPS_MAX);
    if (e == SM_OK) {
        l->count++;
        *number = x->number = ++l->last;
        *place_of(l, x->number) = x;
    }
    pthread_mutex_unlock(&l->lock);
    if (e != SM_OK) {
        semel_loop_free(x->loop);
        free(x);
    }
    return e;
}

void fl_on_loop_new(sm_operation *op, semel_answer *a)
{
#define MEMBER(type, n) .name = #n, .offset = offsetof(type, n)
    static const sm_object_member members[] = {
        {MEMBER(new_body, repeats), .kind = SM_M_COUNT, .min = 2, .max = UINT32_MAX},
        {MEMBER(new_body, max_cycle), .kind = SM_M_COUNT, .min = 1, .max = UINT32_MAX},
    };
    fl_operation *o = fl_operation_of(op);
    new_body b = {0};
    uint64_t number = 0;
    sm_fault fault = {0};
    (void)a;
    if (!sm_op_body(op, members, sizeof members / sizeof *members, &b))
        return;
    if (make(&o->core->loops, &b, &number, &fault) != SM_OK) {
        sm_op_refuse(op, &fault);
        return;
    }
    sm_buf *out = &o->client->answer;
    sm_buf_byte(out, '{');
    sm_put_number(out, "loop", number);
    sm_buf_byte(out, '}');
    fl_deliver(&o->core->port, o->client);
}

/* ---- using -----------------------------------------------------------------------------------*/

typedef struct loop_body {
    int64_t loop;
    sm_str tool, args, result;
} loop_body;

#define LOOP                                                                                       \
    {                                                                                              \
        MEMBER(loop_body, loop), .kind = SM_M_COUNT, .min = 1, .max = INT64_MAX, .required = true  \
    }

static void refuse_unknown(sm_operation *op)
{
    sm_op_problem(op, 404, "NOT_FOUND", "Make one with \"op\": \"loop_new\".",
                  "there is no detector of this number");
}

void fl_on_loop_add(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {
        LOOP,
        {MEMBER(loop_body, tool), .kind = SM_M_TEXT, .required = true},
        {MEMBER(loop_body, args), .kind = SM_M_ANY},
        {MEMBER(loop_body, result), .kind = SM_M_ANY},
    };
    fl_operation *o = fl_operation_of(op);
    fl_loops *l = &o->core->loops;
    loop_body b = {0};
    semel_loop_match match = {0};
    (void)a;
    if (!sm_op_body(op, members, sizeof members / sizeof *members, &b))
        return;
    pthread_mutex_lock(&l->lock);
    fl_loop *x = *place_of(l, (uint64_t)b.loop);
    bool looping = x != NULL && semel_loop_add(x->loop, b.tool, b.args, b.result, &match);
    pthread_mutex_unlock(&l->lock);
    if (x == NULL) {
        refuse_unknown(op);
        return;
    }
    sm_buf *out = &o->client->answer;
    sm_buf_byte(out, '{');
    sm_put_bool(out, "looping", looping);
    if (looping) {
        sm_put_text(out, "detector", match.detector);
        sm_put_number(out, "period", match.period);
        sm_put_number(out, "count", match.count);
    }
    sm_buf_byte(out, '}');
    fl_deliver(&o->core->port, o->client);
}

void fl_on_loop_free(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {LOOP};
    fl_loops *l = &fl_operation_of(op)->core->loops;
    loop_body b = {0};
    (void)a;
    if (!sm_op_body(op, members, sizeof members / sizeof *members, &b))
        return;
    pthread_mutex_lock(&l->lock);
    fl_loop **at = place_of(l, (uint64_t)b.loop), *x = *at;
    if (x != NULL) {
        *at = x->next;
        l->count--;
    }
    pthread_mutex_unlock(&l->lock);
    if (x == NULL) {
        refuse_unknown(op);
        return;
    }
    semel_loop_free(x->loop);
    free(x);
    op->door->json(op, SM_STR("{\"freed\":true}"));
}
