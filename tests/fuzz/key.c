/*
 * A call and its keys: what was hashed can be taken apart again into exactly the parts of the call,
 * so no other call has the same preimage (I10).
 *
 * Parts: scope, step, tool, caller's key, arguments. An empty step or key is absent.
 */
#include "fuzz.h"

#include "core/call.h"
#include "core/key.h"

/* The parts of the preimage must be these, in this order; a tag of 0 ends them. */
static void must_consist_of(sm_str preimage, const sm_part *tags, const sm_str *parts)
{
    size_t at = 0;
    sm_part tag;
    sm_str part;
    while (sm_key_part(preimage, &at, &tag, &part)) {
        must(at <= preimage.n);
        must(tag == *tags && sm_str_eq(part, *parts));
        tags++;
        parts++;
    }
    must(*tags == 0 && at == preimage.n);
}

static void must_survive_its_text(const sm_hash *h)
{
    char text[SM_HASH_TEXT + 1];
    sm_hash again;
    sm_hash_text(h, text);
    must(sm_hash_parse((sm_str){text, SM_HASH_TEXT}, &again));
    must(memcmp(h->b, again.b, SM_HASH_BYTES) == 0);
}

static void make_keys(sm_keyer *k, const sm_parsed_call *call, sm_str form)
{
    static const uint8_t nonce[SM_NONCE_BYTES] = "sixteen bytes !";
    const sm_str nonce_text = {(const char *)nonce, sizeof nonce};
    sm_key key;
    for (sm_strategy s = SM_KEY_HASH; s < SM_KEY_NONE; s++) {
        if ((s == SM_KEY_STEP && call->step.p == NULL) ||
            (s == SM_KEY_EXPLICIT && call->key.p == NULL))
            continue;
        must(sm_key_make(k, s, call, call->args, nonce, &key, NULL) == SM_OK);
        sm_part tags[5] = {SM_PART_SCOPE};
        sm_str parts[5] = {call->scope};
        int n = 1;
        if (call->step.p != NULL && s <= SM_KEY_STEP) {
            tags[n] = SM_PART_STEP;
            parts[n++] = call->step;
        }
        if (s != SM_KEY_EXPLICIT) {
            tags[n] = SM_PART_TOOL;
            parts[n++] = call->tool;
        }
        if (s <= SM_KEY_FIELDS) {
            tags[n] = SM_PART_ARGS;
            parts[n++] = form;
        } else if (s == SM_KEY_EXPLICIT) {
            tags[n] = SM_PART_KEY;
            parts[n++] = call->key;
        } else if (s == SM_KEY_UNIQUE) {
            tags[n] = SM_PART_NONCE;
            parts[n++] = nonce_text;
        }
        tags[n] = 0;
        must_consist_of(sm_buf_view(&k->preimage), tags, parts);
        must_survive_its_text(&key.hash);
        sm_down_key down;
        must(sm_down_key_make(k, &key, 1, 1, &down) == SM_OK);
        must(memcmp(down.hash.b, key.hash.b, SM_HASH_BYTES) != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sm_str rest = input(data, size), parts[5] = {0};
    for (int i = 0; i < 5; i++)
        next_part(&rest, &parts[i]);
    sm_parsed_call call = {.scope = parts[0],
                           .step = parts[1].n == 0 ? (sm_str){0} : parts[1],
                           .tool = parts[2],
                           .key = parts[3].n == 0 ? (sm_str){0} : parts[3],
                           .args_text = parts[4]};
    sm_fault f = {0};
    sm_err e = sm_call_check(&call, &f);
    must(e == SM_OK || (e == SEMEL_E_BAD_ARGUMENTS && f.text[0] != '\0'));
    sm_hash hash;
    if (sm_hash_parse(parts[0], &hash)) {
        char text[SM_HASH_TEXT + 1];
        sm_hash_text(&hash, text);
        must(sm_str_is(parts[0], text));
    }
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    sm_buf form = {0};
    if (e == SM_OK &&
        sm_json_read(&a, parts[4], &sm_json_default_limits, &call.args, NULL) == SM_OK &&
        canonical(call.args, parts[4], &form)) {
        sm_keyer k;
        must(sm_keyer_init(&k) == SM_OK);
        make_keys(&k, &call, sm_buf_view(&form));
        sm_fingerprint print;
        must(sm_fingerprint_make(&k, call.tool, call.args, (sm_str){0}, &print, NULL) == SM_OK);
        sm_keyer_fini(&k);
    }
    sm_buf_fini(&form);
    sm_arena_fini(&a);
    return 0;
}
