/* A ledger with an effect in every state, several generations, redacted and purged payloads. */
#include "tamper.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

typedef struct making {
    semel *s;
    semel_answer *a;
    memory *m;
} making;

static void note_effect(making *k)
{
    memory *m = k->m;
    char text[64];
    snprintf(text, sizeof text, "%.*s", SM_FMT(k->a->effect));
    for (size_t i = 0; i < m->n_effects; i++) {
        if (strcmp(m->effects[i], text) == 0)
            return;
    }
    if (text[0] != '\0')
        strcpy(m->effects[m->n_effects++], text);
}

static void begin(making *k, const char *tool, const char *args, const char *after)
{
    semel_call c = {.size = sizeof c,
                    .scope = SM_STR("shop/till"),
                    .tool = sm_str_from(tool),
                    .args = sm_str_from(args),
                    .after = after == NULL ? (sm_str){0} : sm_str_from(after),
                    .flags = SEMEL_CALL_DETACHED};
    semel_begin(k->s, &c, k->a);
    note_effect(k);
}

static void keep(char out[128], sm_str text)
{
    must(text.n > 0 && text.n < 128, "a claim or request is missing");
    snprintf(out, 128, "%.*s", SM_FMT(text));
}

static void commit(making *k, semel_kind kind, semel_applied applied, const char *value)
{
    char claim[128];
    keep(claim, k->a->claim);
    semel_outcome o = {.size = sizeof o,
                       .kind = kind,
                       .applied = applied,
                       .status = 200,
                       .headers = SM_STR("{\"x-id\":\"7\"}"),
                       .corrective_action =
                           kind == SEMEL_PARTIAL ? SM_STR("do the rest") : (sm_str){0},
                       .value = sm_str_from(value)};
    must(semel_commit(k->s, sm_str_from(claim), &o, k->a) == SEMEL_OK, "a commit failed");
}

static void done(making *k, const char *tool, const char *args, const char *value)
{
    begin(k, tool, args, NULL);
    commit(k, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, value);
}

/* Effects whose first events are gone by right, and effects of which something is purged. */
static void make_old(making *k)
{
    done(k, "t", "{\"old\":1}", "\"long ago\"");
    done(k, "brief", "{}", "\"soon gone\"");
    done(k, "over", "{}", "\"over\"");
    done(k, "set", "{\"id\":0,\"to\":1}", "\"old\"");
    begin(k, "ask", "{\"old\":1}", NULL);
    begin(k, "once", "{\"old\":1}", NULL);
    commit(k, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "\"who knows\"");
    must(semel_seal(k->s, NULL) == SEMEL_OK, "sealing failed");
    usleep(20000);
    done(k, "t", "{\"old\":2}", "\"later\"");
    uint64_t gone = 0;
    must(semel_purge(k->s, NULL, NULL, &gone, NULL) == SEMEL_OK && gone > 0, "nothing is purged");
}

static void make_people(making *k)
{
    semel_answer *a = k->a;
    begin(k, "pay", "{\"n\":1}", NULL); /* one of two has approved */
    keep(k->m->requests[0], a->request);
    semel_approve(k->s, sm_str_from(k->m->requests[0]), SM_STR("carol"), a);
    begin(k, "pay", "{\"n\":2}", NULL); /* nobody has */
    keep(k->m->requests[1], a->request);
    begin(k, "ask", "{\"n\":3}", NULL); /* approved, not begun */
    keep(k->m->requests[2], a->request);
    semel_approve(k->s, sm_str_from(k->m->requests[2]), SM_STR("carol"), a);
    begin(k, "ask", "{\"n\":4}", NULL);
    keep(k->m->requests[3], a->request);
    semel_deny(k->s, sm_str_from(k->m->requests[3]), SM_STR("dan"), SM_STR("too much"), a);
    begin(k, "ask", "{\"n\":5}", NULL);
    char effect[64];
    snprintf(effect, sizeof effect, "%.*s", SM_FMT(a->effect));
    semel_cancel(k->s, sm_str_from(effect), SM_STR("ann"), SM_STR("not now"), a);
    begin(k, "soon", "{}", NULL);
    usleep(20000);
    begin(k, "soon", "{}", NULL); /* the request has expired, and is made again */
}

static void make_ends(making *k)
{
    semel_answer *a = k->a;
    char effect[64];
    done(k, "t", "{\"i\":1}", "\"one\"");
    done(k, "t", "{\"i\":2}", "\"two\""); /* as long as the one before it */
    keep(k->m->claims[2], a->claim.n > 0 ? a->claim : SM_STR("cl_none"));
    begin(k, "t", "{\"i\":3}", NULL);
    keep(k->m->claims[3], a->claim);
    commit(k, SEMEL_PARTIAL, SEMEL_APPLIED_DEFAULT, "\"half\"");
    begin(k, "t", "{\"i\":4}", NULL);
    commit(k, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"failed\"");
    begin(k, "t", "{\"i\":5}", NULL);
    commit(k, SEMEL_FAILURE, SEMEL_APPLIED_YES, "\"failed for good\"");
    begin(k, "t", "{\"i\":6}", NULL); /* in doubt, then given up */
    snprintf(effect, sizeof effect, "%.*s", SM_FMT(a->effect));
    commit(k, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "\"lost\"");
    semel_resolve(k->s, sm_str_from(effect), SEMEL_RESOLVE_ABANDON, NULL, SM_STR("gave up"),
                  SM_STR("bob"), a);
    begin(k, "t", "{\"i\":7}", NULL); /* in doubt */
    keep(k->m->claims[1], a->claim);
    commit(k, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "\"timed out\"");
    done(k, "t", "{\"i\":8}", "\"forget me\"");
    snprintf(effect, sizeof effect, "%.*s", SM_FMT(a->effect));
    semel_forget(k->s, sm_str_from(effect), SM_STR("bob"), SM_STR("asked to"), a);
    done(k, "login", "{\"user\":\"ann\",\"password\":\"secret\"}", "\"in\"");
    done(k, "set", "{\"id\":1,\"to\":1}", "\"overwritten\"");
    done(k, "set", "{\"id\":1,\"to\":2}", "\"last\"");
    begin(k, "slow", "{}", NULL); /* running */
    keep(k->m->claims[0], a->claim);
    begin(k, "busy", "{\"i\":1}", NULL); /* running under a barrier */
}

static void make_generations(making *k)
{
    char effect[64];
    done(k, "again", "{}", "\"first\"");
    for (int i = 0; i < 2; i++) {
        snprintf(effect, sizeof effect, "%.*s", SM_FMT(k->a->effect));
        usleep(3000);
        begin(k, "again", "{}", effect);
        commit(k, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, i == 0 ? "\"other\"" : "\"third\"");
    }
    done(k, "over", "{\"i\":1}", "\"over\"");
    usleep(10000);
    done(k, "over", "{\"i\":1}", "\"once more\"");
}

semel *subject_open(const subject *s, int64_t audit_retention_ms, semel_fault *fault)
{
    semel *out = NULL;
    semel_options o = {.size = sizeof o,
                       .url = s->url,
                       .contract = SM_STR(TAMPER_CONTRACT),
                       .actor = SM_STR("tamper"),
                       .seal_key_path = s->with_key ? s->key_path : NULL,
                       .audit_retention_ms = audit_retention_ms,
                       .one_shot = true};
    semel_open(&o, &out, fault);
    return out;
}

void populate(const subject *s, memory *m)
{
    semel_fault fault = {0};
    *m = (memory){.n_effects = 0};
    making k = {.a = semel_answer_new(), .m = m};
    k.s = subject_open(s, 1, &fault);
    must(k.s != NULL, "the ledger cannot be made: %s", fault.text);
    make_old(&k);
    semel_close(k.s);
    k.s = subject_open(s, 0, &fault);
    must(k.s != NULL, "the ledger cannot be opened: %s", fault.text);
    make_ends(&k);
    must(semel_seal(k.s, NULL) == SEMEL_OK, "sealing failed");
    make_people(&k);
    make_generations(&k);
    begin(&k, "t", "{\"i\":1}", NULL); /* a replay, for the notes */
    usleep(10000);
    uint64_t gone = 0; /* what is over is gone, and not still there by chance */
    must(semel_purge(k.s, NULL, NULL, &gone, NULL) == SEMEL_OK && gone > 0, "nothing is purged");
    must(semel_seal(k.s, NULL) == SEMEL_OK, "sealing failed");
    semel_answer_free(k.a);
    semel_close(k.s);
}
