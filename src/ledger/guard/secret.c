/* The ledger's secret, kept as a document that guards share. */
#include "ledger/guard/secret.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ledger/guard/shared.h"

static const sm_shared secret_document = {.kind = "/secret"};

static sm_err no_bytes(semel_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_CRYPTO, "the system gives no random bytes");
}

/* The document is a JSON string. */
static bool read_text(sm_str text, sm_hash *out)
{
    return text.n == SM_HASH_TEXT + 2 && sm_hash_parse((sm_str){text.p + 1, SM_HASH_TEXT}, out);
}

static sm_err make(semel *s, sm_work *w, sm_hash *out)
{
    char text[SM_HASH_TEXT + 3];
    if (getrandom(out->b, sizeof out->b, 0) != (ssize_t)sizeof out->b)
        return no_bytes(&w->fault);
    text[0] = '"';
    sm_hash_text(out, text + 1);
    text[SM_HASH_TEXT + 1] = '"';
    sm_body_start(w);
    sm_err e = sm_shared_write(s, w, &secret_document, (sm_str){text, SM_HASH_TEXT + 2}, SM_N_KEYED,
                               (sm_str){0});
    explicit_bzero(text, sizeof text);
    return e;
}

/* Others may make it at the same time; what was written first is what counts. */
static sm_err find(semel *s, sm_work *w, sm_hash *out)
{
    for (int races = 0; races < SM_RACES_MAX; races++) {
        sm_str text;
        sm_err e = sm_shared_read(s, w, &secret_document, &text);
        if (e != SM_OK)
            return e;
        if (text.p != NULL)
            return read_text(text, out)
                       ? SM_OK
                       : sm_fault_set(&w->fault, SEMEL_E_CORRUPT,
                                      "the ledger is damaged: its secret cannot be read; run "
                                      "`semel audit verify`");
        e = make(s, w, out);
        if (e != SEMEL_E_STALE)
            return e;
    }
    return sm_fault_set(&w->fault, SEMEL_E_UNAVAILABLE, "the store loses every race");
}

sm_err sm_secret_get(semel *s, const sm_hash **out, semel_fault *fault)
{
    sm_hash *known = atomic_load(&s->secret);
    if (known != NULL) {
        *out = known;
        return SM_OK;
    }
    semel_answer *a = semel_answer_new();
    sm_hash *made = malloc(sizeof *made);
    sm_err e = a == NULL || made == NULL ? SEMEL_E_NOMEM : SM_OK;
    if (e == SM_OK) {
        sm_work *w = sm_work_start(a);
        e = find(s, w, made);
        if (e != SM_OK)
            *fault = w->fault;
    }
    if (e == SM_OK && atomic_compare_exchange_strong(&s->secret, &known, made))
        known = made;
    *out = known;
    if (made != NULL && made != known) {
        explicit_bzero(made, sizeof *made);
        free(made);
    }
    semel_answer_free(a);
    return e;
}

void sm_secret_fini(semel *s)
{
    sm_hash *known = atomic_exchange(&s->secret, NULL);
    if (known != NULL)
        explicit_bzero(known, sizeof *known);
    free(known);
}
