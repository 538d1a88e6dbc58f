/* Every question, and the answers as one text. */
#include "tamper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static void put(sm_buf *out, const char *name, sm_str text)
{
    if (text.p != NULL)
        sm_buf_printf(out, " %s=%.*s", name, SM_FMT(text));
}

/* Everything in an answer but what is random or depends on the time. */
static void put_answer(sm_buf *out, const char *what, semel_err e, const semel_answer *a)
{
    sm_buf_printf(out, "%s: %d verdict=%d code=%d state=%d gen=%llu attempt=%llu fence=%llu", what,
                  e, a->verdict, a->code, a->state, (unsigned long long)a->generation,
                  (unsigned long long)a->attempt, (unsigned long long)a->fence);
    put(out, "effect", a->effect);
    put(out, "key", a->idempotency_key);
    put(out, "request", a->request);
    put(out, "drift", a->drift);
    put(out, "repeat_of", a->repeat_of);
    put(out, "blocked_by", a->blocked_by);
    put(out, "observed", a->observed);
    put(out, "result", a->result);
    sm_buf_printf(out, " retriable=%d", a->retriable);
    if (a->has_outcome) {
        const semel_outcome *o = &a->outcome;
        sm_buf_printf(out, " kind=%d applied=%d status=%d json=%d kept=%d bytes=%llu", o->kind,
                      o->applied, o->status, o->is_json, o->kept, (unsigned long long)o->bytes);
        put(out, "value", o->value);
        put(out, "headers", o->headers);
        put(out, "left", o->corrective_action);
    }
    sm_buf_byte(out, '\n');
}

/* Lists are sorted: in which order effects are listed is for people. */
typedef struct items {
    char *lines[256];
    size_t n;
} items;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool put_item(void *context, const semel_answer *item, const semel_record *r)
{
    items *all = context;
    sm_buf line, *out = &line;
    sm_buf_init(out, 1 << 20);
    put_answer(out, "list", SEMEL_OK, item);
    put(out, "scope", r->scope);
    put(out, "step", r->step);
    put(out, "tool", r->tool);
    put(out, "caller", r->caller);
    put(out, "args", r->args);
    must(all->n < sizeof all->lines / sizeof *all->lines, "too many effects");
    all->lines[all->n++] = print_new("%.*s", (int)out->len, out->p);
    sm_buf_fini(out);
    return true;
}

static void put_sorted(items *all, sm_buf *out)
{
    qsort(all->lines, all->n, sizeof *all->lines, by_text);
    for (size_t i = 0; i < all->n; i++) {
        sm_buf_printf(out, "%s\n", all->lines[i]);
        free(all->lines[i]);
    }
}

static void list(semel *s, uint32_t states, sm_buf *out)
{
    semel_query q = {.size = sizeof q, .limit = 1000, .filter = {.states = states}};
    semel_fault fault = {0};
    items all = {.n = 0};
    semel_err e;
    do
        e = semel_list(s, &q, put_item, &all, &fault);
    while (e == SEMEL_OK && q.cursor != 0);
    put_sorted(&all, out);
    sm_buf_printf(out, "list: %d %s\n", e, fault.text);
}

static bool put_line(void *context, semel_str line)
{
    items *all = context;
    must(all->n < sizeof all->lines / sizeof *all->lines, "too many effects");
    all->lines[all->n++] = print_new("%.*s", SM_FMT(line));
    return true;
}

/* The story without how often it was replayed: notes are outside of the chain. */
static void show(semel *s, semel_answer *a, const char *effect, sm_buf *out)
{
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(effect)};
    semel_err e = semel_show(s, &name, a, &json);
    const char *end = json.p == NULL ? NULL : memmem(json.p, json.n, "],\"replays\":", 12);
    sm_buf_printf(out, "show %s: %d %.*s\n", effect, e,
                  (int)(end == NULL ? json.n : (size_t)(end - json.p)), json.p);
}

static void ask(semel *s, semel_answer *a, const char *tool, const char *args, sm_buf *out)
{
    semel_call c = {.size = sizeof c,
                    .scope = SM_STR("shop/till"),
                    .tool = sm_str_from(tool),
                    .args = sm_str_from(args),
                    .flags = SEMEL_CALL_DETACHED};
    char what[128];
    snprintf(what, sizeof what, "begin %s %s", tool, args);
    semel_err e = semel_begin(s, &c, a);
    put_answer(out, what, e, a);
}

static const char *const calls[][2] = {
    {"t", "{\"old\":1}"},
    {"t", "{\"old\":2}"},
    {"brief", "{}"},
    {"over", "{}"},
    {"ask", "{\"old\":1}"},
    {"once", "{\"old\":1}"},
    {"once", "{\"new\":1}"},
    {"t", "{\"i\":1}"},
    {"t", "{\"i\":2}"},
    {"t", "{\"i\":3}"},
    {"t", "{\"i\":4}"},
    {"t", "{\"i\":5}"},
    {"t", "{\"i\":6}"},
    {"t", "{\"i\":7}"},
    {"t", "{\"i\":8}"},
    {"login", "{\"user\":\"ann\",\"password\":\"secret\"}"},
    {"slow", "{}"},
    {"busy", "{\"i\":1}"},
    {"busy", "{\"i\":2}"},
    {"pay", "{\"n\":1}"},
    {"pay", "{\"n\":2}"},
    {"ask", "{\"n\":3}"},
    {"ask", "{\"n\":4}"},
    {"ask", "{\"n\":5}"},
    {"again", "{}"},
    {"over", "{\"i\":1}"},
    {"set", "{\"id\":0,\"to\":1}"},
    {"set", "{\"id\":1,\"to\":1}"},
    {"set", "{\"id\":1,\"to\":2}"},
    {"t", "{\"fresh\":1}"},
};

static void people(semel *s, semel_answer *a, const memory *m, sm_buf *out)
{
    for (size_t i = 0; i < 4; i++) {
        semel_err e = semel_approve(s, sm_str_from(m->requests[i]), SM_STR("erin"), a);
        put_answer(out, "approve", e, a);
    }
    for (size_t i = 0; i < 4; i++) {
        semel_outcome o = {.size = sizeof o, .value = SM_STR("\"late\"")};
        semel_err e = semel_commit(s, sm_str_from(m->claims[i]), &o, a);
        put_answer(out, "commit", e, a);
    }
    for (size_t i = 0; i < m->n_effects; i++) {
        semel_err e = semel_resolve(s, sm_str_from(m->effects[i]), SEMEL_RESOLVE_NOT_APPLIED, NULL,
                                    SM_STR("looked"), SM_STR("erin"), a);
        put_answer(out, "resolve", e, a);
    }
}

void battery(semel *s, const memory *m, sm_buf *out)
{
    semel_answer *a = semel_answer_new();
    semel_fault fault = {0};
    must(a != NULL, "out of memory");
    list(s, 0, out);
    for (uint32_t state = SEMEL_S_PENDING; state <= SEMEL_S_IN_DOUBT; state++)
        list(s, 1u << state, out);
    for (size_t i = 0; i < m->n_effects; i++)
        show(s, a, m->effects[i], out);
    items lines = {.n = 0};
    semel_err e = semel_export(s, (sm_str){0}, put_line, &lines, &fault);
    put_sorted(&lines, out);
    sm_buf_printf(out, "export: %d %s\n", e, fault.text);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        ask(s, a, calls[i][0], calls[i][1], out);
    people(s, a, m, out);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        ask(s, a, calls[i][0], calls[i][1], out);
    semel_answer_free(a);
}

static bool ignore_symptom(void *context, const semel_symptom *symptom)
{
    (void)context;
    (void)symptom;
    return true;
}

static bool ignore_event(void *context, const semel_event *e)
{
    char text[4096];
    size_t n;
    (void)context;
    semel_event_json(e, text, sizeof text, &n);
    return true;
}

void rummage(semel *s)
{
    uint64_t done, after = 0;
    semel_stats stats = {.size = sizeof stats};
    semel_doctor(s, 0, ignore_symptom, NULL, NULL, NULL);
    semel_stats_get(s, true, &stats, NULL);
    semel_events(s, (sm_str){0}, &after, 1000, ignore_event, NULL, NULL);
    semel_purge(s, NULL, NULL, &done, NULL);
    semel_seal(s, NULL);
}
