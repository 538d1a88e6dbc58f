/*
 * What comes back from a store or a file is as hostile as anything else: lives and outcomes of any
 * bytes, handles of any text, lines of an export. Nothing makes an effect that is not sound, and
 * what is accepted says the same when it is written again.
 *
 * The first byte chooses: l a life, o an outcome, h a handle, else a line to import.
 */
#include "fuzz.h"

#include "core/record.h"

static void try_life(sm_str bytes)
{
    /* The columns beside a life come from its first bytes, so that both can be wrong. */
    uint8_t c[8] = {0};
    memcpy(c, bytes.p, bytes.n < sizeof c ? bytes.n : sizeof c);
    if (bytes.n < sizeof c)
        return;
    semel_record r = {.state = c[0] % (SEMEL_S_COUNT + 1),
                      .generation = c[1],
                      .fence = c[2],
                      .lease_end = c[3],
                      .settled_at = c[4],
                      .window_end = c[5],
                      .result_end = c[6],
                      .version = 1,
                      .scope = SM_STR("s"),
                      .tool = SM_STR("t"),
                      .life = {bytes.p + sizeof c, bytes.n - sizeof c}};
    sm_memo m, again;
    if (sm_memo_unpack(&r, &m) != SM_OK)
        return;
    must(sm_effect_flaw(&m.effect) == NULL);
    sm_buf life;
    sm_buf_init(&life, SM_ARENA_MAX);
    must(sm_memo_pack(&m, &r, &life) == SM_OK);
    must(sm_memo_unpack(&r, &again) == SM_OK);
    must(memcmp(&m.effect, &again.effect, SM_EFFECT_HEAD) == 0);
    for (uint32_t i = 0; i < m.effect.doubt_count; i++)
        must(m.effect.doubts[i] == again.effect.doubts[i]);
    sm_contract terms;
    sm_terms_contract(&m.terms, &terms);
    for (int kind = 0; kind < SM_EV_COUNT; kind++) {
        sm_life_event ev = {.kind = (sm_event_kind)kind,
                            .fence = c[2],
                            .request = c[7] % 4,
                            .lease_ms = 1000,
                            .outcome = (semel_kind)(c[7] % 3),
                            .applied = (semel_applied)(SEMEL_APPLIED_NO + c[7] % 3),
                            .resolution = (semel_resolution)(c[7] % 3)};
        sm_move step;
        sm_transition(&m.effect, &ev, &terms, 1 + c[3] * 2, &step);
    }
    sm_buf_fini(&life);
}

static void try_outcome(sm_str bytes)
{
    semel_outcome o, again;
    sm_buf out;
    sm_buf_init(&out, SM_ARENA_MAX);
    if (sm_outcome_unpack(bytes, &o)) {
        must(sm_outcome_pack(&o, &out) == SM_OK);
        must(sm_outcome_unpack(sm_buf_view(&out), &again));
        must(o.kind == again.kind && o.bytes == again.bytes && sm_str_eq(o.value, again.value));
    }
    sm_buf_fini(&out);
}

static void try_handle(sm_str text)
{
    static const struct {
        const char *prefix;
        size_t (*put)(const sm_handle *, char[SM_HANDLE_TEXT]);
    } kinds[] = {{"ef_", sm_handle_effect}, {"ap_", sm_handle_request}, {"cl_", sm_handle_claim}};
    for (size_t i = 0; i < 3; i++) {
        sm_handle h;
        char out[SM_HANDLE_TEXT];
        if (sm_handle_parse(kinds[i].prefix, text, &h))
            must(sm_str_eq(text, (sm_str){out, kinds[i].put(&h, out)}));
    }
}

static void try_import(sm_str line)
{
    static semel *s;
    if (s == NULL) {
        semel_options o = {.size = sizeof o, .url = "memory:", .one_shot = true};
        must(semel_open(&o, &s, NULL) == SEMEL_OK);
    }
    semel_imported count = {.size = sizeof count};
    semel_fault fault = {0};
    semel_err e = semel_import_line(s, line, &count, &fault);
    must(e == SEMEL_OK || fault.text[0] != '\0');
    must(count.added + count.kept == (e == SEMEL_OK));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    sm_str rest = input(data + 1, size - 1);
    switch (data[0]) {
    case 'l': try_life(rest); break;
    case 'o': try_outcome(rest); break;
    case 'h': try_handle(rest); break;
    default: try_import(input(data, size)); break;
    }
    return 0;
}
