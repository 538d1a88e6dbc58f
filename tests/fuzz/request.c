/*
 * What clients send to the gateway: bodies of calls, the header Idempotency-Key.
 *
 * Parts: body, header (an empty one is absent). Whatever is refused is refused in words. What is
 * read is bounded and the same every time, its arguments are a document of their own, and a key
 * survives being quoted.
 */
#include "fuzz.h"

#include "gateway/body.h"

#define WAIT_MAX 300000

static void must_be_told(sm_err e, const sm_fault *f)
{
    must(e != SM_OK && f->code == e);
    must(f->text[0] != '\0');
    must(sm_utf8_valid((sm_str){f->text, strlen(f->text)}));
}

static void must_be_equal(sm_str a, sm_str b)
{
    must((a.p == NULL) == (b.p == NULL) && sm_str_eq(a, b));
}

/* A key as RFC 8941 writes it is read as the same key. */
static void must_survive_quoting(sm_arena *a, sm_str key)
{
    char text[2 * SM_KEY_MAX + 2];
    size_t n = 0;
    text[n++] = '"';
    for (size_t i = 0; i < key.n; i++) {
        must(key.p[i] >= 0x20 && key.p[i] <= 0x7E);
        if (key.p[i] == '"' || key.p[i] == '\\')
            text[n++] = '\\';
        text[n++] = key.p[i];
    }
    text[n++] = '"';
    sm_str again;
    must(gw_key_parse(a, (sm_str){text, n}, &again, NULL) == SM_OK);
    must(sm_str_eq(again, key));
}

static void read_key(sm_arena *a, sm_str header)
{
    sm_str key;
    sm_fault f = {0};
    sm_err e = gw_key_parse(a, header, &key, &f);
    if (e != SM_OK) {
        must_be_told(e, &f);
        return;
    }
    must(key.n > 0 && key.n <= SM_KEY_MAX);
    must_survive_quoting(a, key);
}

static void read_call(sm_arena *a, sm_str body, sm_str header, gw_call_form form)
{
    semel_call call, again;
    sm_fault f = {0};
    sm_err e = gw_call_parse(a, body, header, form, WAIT_MAX, &call, &f);
    must(gw_call_parse(a, body, header, form, WAIT_MAX, &again, NULL) == e);
    if (e != SM_OK) {
        must_be_told(e, &f);
        must(f.at <= body.n);
        return;
    }
    must(call.scope.p != NULL && call.tool.p != NULL && call.args.p != NULL);
    must(call.wait_ms >= 0 && call.wait_ms <= WAIT_MAX);
    must(form == GW_FORM_BEGIN || call.after.p == NULL);
    must(header.p == NULL || call.key.p != NULL);
    must_be_equal(call.scope, again.scope);
    must_be_equal(call.step, again.step);
    must_be_equal(call.tool, again.tool);
    must_be_equal(call.args, again.args);
    must_be_equal(call.key, again.key);
    const sm_json *args;
    must(sm_json_read(a, call.args, &sm_json_default_limits, &args, NULL) == SM_OK);
    must_be_sound(args, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sm_str rest = input(data, size), body = {0}, header = {0};
    next_part(&rest, &body);
    next_part(&rest, &header);
    if (header.n == 0)
        header = (sm_str){0};
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    if (header.p != NULL)
        read_key(&a, header);
    read_call(&a, body, header, GW_FORM_CALL);
    read_call(&a, body, header, GW_FORM_BEGIN);
    sm_arena_fini(&a);
    return 0;
}
