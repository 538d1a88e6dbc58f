/*
 * semel_loop: the detector of loops, usable alone. Calls and results become numbers here, and
 * core/loop.h finds the patterns. Pure: no ledger, no input or output, no clock.
 *
 * JSON is compared by value, anything else by its bytes. What was done is not known here, so only
 * repeats and cycles are looked for.
 */
#include <stdlib.h>

#include "base/digest.h"
#include "base/given.h"
#include "core/loop.h"
#include "json/canon.h"
#include "semel/semel.h"

#define REPEATS   3u
#define MAX_CYCLE 2u

struct semel_loop {
    sm_loop loop;
    uint32_t repeats, max_cycle;
    sm_arena arena;
    sm_buf text;
    sm_digest digest;
};

static sm_err read_options(const semel_loop_options *given, semel_loop_options *o,
                           semel_fault *fault)
{
    *o = (semel_loop_options){.size = sizeof *o};
    sm_err e = given == NULL ? SM_OK
                             : sm_given_read(o, sizeof *o, given,
                                             SM_FIRST_SIZE(semel_loop_options, max_cycle),
                                             "the options", fault);
    if (e != SM_OK)
        return e;
    o->repeats = o->repeats == 0 ? REPEATS : o->repeats;
    o->max_cycle = o->max_cycle == 0 ? MAX_CYCLE : o->max_cycle;
    if (o->repeats < 2 || o->max_cycle > SM_LOOP_CYCLE_MAX)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            o->repeats < 2 ? "repeats is at least 2" : "max_cycle is at most %u",
                            SM_LOOP_CYCLE_MAX);
    return SM_OK;
}

semel_err semel_loop_new(const semel_loop_options *options, semel_loop **out, semel_fault *fault)
{
    semel_loop_options o;
    *out = NULL;
    sm_err e = read_options(options, &o, fault);
    if (e != SM_OK)
        return e;
    semel_loop *l = calloc(1, sizeof *l);
    if (l == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_arena_init(&l->arena, SM_ARENA_MAX);
    sm_buf_init(&l->text, SM_ARENA_MAX);
    l->repeats = o.repeats;
    l->max_cycle = l->loop.periods = o.max_cycle;
    e = sm_digest_init(&l->digest);
    if (e == SM_OK) {
        *out = l;
        return SM_OK;
    }
    semel_loop_free(l);
    return sm_fault_set(fault, e, "%s", semel_err_text(e));
}

void semel_loop_free(semel_loop *l)
{
    if (l == NULL)
        return;
    sm_digest_fini(&l->digest);
    sm_buf_fini(&l->text);
    sm_arena_fini(&l->arena);
    free(l);
}

/* Canonical JSON, or 'b' and the bytes as they are. */
static void put_value(semel_loop *l, sm_str value)
{
    const sm_json *root;
    size_t before = l->text.len;
    if (sm_json_read(&l->arena, value, &sm_json_default_limits, &root, NULL) == SM_OK &&
        sm_json_canon(root, &l->text, (sm_str){0}, NULL) == SM_OK)
        return;
    if (l->text.err != SM_OK)
        return;
    l->text.len = before;
    sm_buf_byte(&l->text, 'b'); /* no JSON begins so */
    sm_buf_str(&l->text, value);
}

/* False when out of memory. */
static bool number_of(semel_loop *l, uint64_t *out)
{
    sm_hash h;
    if (l->text.err != SM_OK || sm_digest_bytes(&l->digest, l->text.p, l->text.len, &h) != SM_OK)
        return false;
    memcpy(out, h.b, sizeof *out);
    *out += *out == 0; /* 0: not known */
    return true;
}

static bool read_entry(semel_loop *l, sm_str tool, sm_str args, sm_str result, sm_loop_entry *e)
{
    *e = (sm_loop_entry){0};
    sm_arena_reset(&l->arena);
    sm_buf_clear(&l->text);
    sm_buf_printf(&l->text, "%zu ", tool.n);
    sm_buf_str(&l->text, tool);
    put_value(l, args.p == NULL ? SM_STR("{}") : args);
    if (!number_of(l, &e->call))
        return false;
    sm_buf_clear(&l->text);
    if (result.p != NULL)
        put_value(l, result);
    return result.p == NULL || number_of(l, &e->result);
}

bool semel_loop_add(semel_loop *l, semel_str tool, semel_str args, semel_str result,
                    semel_loop_match *match)
{
    sm_loop_entry e;
    sm_loop_match m = {.period = 1, .count = 1};
    if (read_entry(l, tool, args, result, &e))
        m = sm_loop_add(&l->loop, e, true, l->max_cycle);
    if (match != NULL)
        *match = (semel_loop_match){.detector = sm_str_from(sm_loop_name(m.detector)),
                                    .period = m.period,
                                    .count = m.count};
    return m.count >= l->repeats;
}
