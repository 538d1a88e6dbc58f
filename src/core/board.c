/* The board as JSON, and what it stops. */
#include "core/board.h"

#include <stdlib.h>

#include "core/call.h"
#include "core/glob.h"
#include "json/json.h"
#include "json/write.h"

const char *sm_halt_name(sm_halt_kind kind)
{
    static const char *const names[] = {"all", "scope", "tool", "loop"};
    return names[kind];
}

/* ---- reading ---------------------------------------------------------------------------------*/

static sm_str text_of(const sm_json *object, const char *name)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    return v != NULL && v->type == SM_JSON_STRING ? sm_json_text(v) : (sm_str){0};
}

static int64_t number_of(const sm_json *object, const char *name)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    return v != NULL && v->type == SM_JSON_NUMBER ? strtoll(v->text, NULL, 10) : 0;
}

static bool read_halt(const sm_json *v, sm_halt *h)
{
    sm_str kind = text_of(v, "kind"), detector = text_of(v, "detector");
    h->name = text_of(v, "name");
    h->reason = text_of(v, "reason");
    h->by = text_of(v, "by");
    h->bound = text_of(v, "bound");
    h->at = number_of(v, "at");
    h->match.period = (uint32_t)number_of(v, "period");
    h->match.count = (uint32_t)number_of(v, "count");
    for (int d = SM_LOOP_REPEAT; d <= SM_LOOP_NO_PROGRESS; d++) {
        if (sm_str_is(detector, sm_loop_name((sm_loop_detector)d)))
            h->match.detector = (sm_loop_detector)d;
    }
    for (int k = SM_HALT_ALL; k <= SM_HALT_LOOP; k++) {
        if (sm_str_is(kind, sm_halt_name((sm_halt_kind)k))) {
            h->kind = (sm_halt_kind)k;
            return k == SM_HALT_ALL || h->name.n > 0;
        }
    }
    return false;
}

static bool read_circuit(const sm_json *v, sm_circuit *c)
{
    sm_str state = text_of(v, "state");
    c->of.tool = text_of(v, "tool");
    c->of.upstream = text_of(v, "upstream");
    c->of.tenant = text_of(v, "tenant");
    c->since = number_of(v, "since");
    c->until = number_of(v, "until");
    c->failures = (uint32_t)number_of(v, "failures");
    return c->of.tool.n > 0 && sm_circuit_state_read(state, &c->state);
}

/* Circuits are not there if none is open. */
static bool read_circuits(sm_arena *a, const sm_json *root, sm_board *out)
{
    const sm_json *list = sm_json_find(root, SM_STR("circuits"));
    if (list == NULL)
        return true;
    if (list->type != SM_JSON_ARRAY || list->len > SM_CIRCUITS_MAX)
        return false;
    out->circuits = sm_arena_zalloc(a, list->len + 1, sizeof *out->circuits);
    if (out->circuits == NULL)
        return false;
    const sm_json *item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item)) {
        if (!read_circuit(item, &out->circuits[out->n_circuits++]))
            return false;
    }
    return true;
}

bool sm_board_read(sm_arena *a, sm_str text, sm_board *out)
{
    const sm_json *root, *list;
    *out = (sm_board){0};
    if (text.p == NULL)
        return true;
    if (sm_json_read(a, text, &sm_json_args_limits, &root, NULL) != SM_OK ||
        (list = sm_json_find(root, SM_STR("halts"))) == NULL || list->type != SM_JSON_ARRAY ||
        list->len > SM_HALTS_MAX || !read_circuits(a, root, out))
        return false;
    out->halts = sm_arena_zalloc(a, list->len + 1, sizeof *out->halts);
    if (out->halts == NULL)
        return false;
    const sm_json *item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item)) {
        if (!read_halt(item, &out->halts[out->n++]))
            return false;
    }
    return true;
}

/* ---- writing ---------------------------------------------------------------------------------*/

void sm_halt_put(const sm_halt *h, sm_buf *out)
{
    sm_put_text(out, "kind", sm_str_from(sm_halt_name(h->kind)));
    sm_put_text(out, "name", h->name);
    sm_put_text(out, "reason", h->reason);
    sm_put_text(out, "by", h->by);
    if (h->kind == SM_HALT_LOOP) {
        sm_put_text(out, "detector", sm_str_from(sm_loop_name(h->match.detector)));
        sm_put_number(out, "period", h->match.period);
        sm_put_number(out, "count", h->match.count);
    }
}

static void put_circuits(const sm_board *b, sm_buf *out)
{
    sm_put_open(out, "circuits", '[');
    for (uint32_t i = 0; i < b->n_circuits; i++) {
        const sm_circuit *c = &b->circuits[i];
        sm_put_item(out);
        sm_buf_byte(out, '{');
        sm_put_text(out, "tool", c->of.tool);
        sm_put_text(out, "upstream", c->of.upstream);
        sm_put_text(out, "tenant", c->of.tenant);
        sm_put_text(out, "state", sm_str_from(sm_circuit_state_name(c->state)));
        sm_put_signed(out, "since", c->since);
        sm_put_signed(out, "until", c->until);
        sm_put_number(out, "failures", c->failures);
        sm_buf_byte(out, '}');
    }
    sm_buf_byte(out, ']');
}

void sm_board_put(const sm_board *b, sm_buf *out)
{
    sm_buf_byte(out, '{');
    sm_put_open(out, "halts", '[');
    for (uint32_t i = 0; i < b->n; i++) {
        sm_put_item(out);
        sm_buf_byte(out, '{');
        sm_halt_put(&b->halts[i], out);
        sm_put_text(out, "bound", b->halts[i].bound);
        sm_put_signed(out, "at", b->halts[i].at);
        sm_buf_byte(out, '}');
    }
    sm_buf_byte(out, ']');
    if (b->n_circuits > 0)
        put_circuits(b, out);
    sm_buf_byte(out, '}');
}

/* ---- room ------------------------------------------------------------------------------------*/

/* The following are never less than what is written. */
static size_t text_bytes(sm_str t)
{
    size_t n = t.n;
    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)t.p[i];
        n += c < 0x20 || c == 0x7f || c == '"' || c == '\\' ? 5 : 0; /* \u001f */
    }
    return n;
}

static size_t halt_bytes(const sm_halt *h)
{
    return 176 + text_bytes(h->name) + text_bytes(h->reason) + text_bytes(h->by) +
           text_bytes(h->bound);
}

static size_t circuit_bytes(const sm_circuit *c)
{
    return 180 + text_bytes(c->of.tool) + text_bytes(c->of.upstream) + text_bytes(c->of.tenant);
}

static size_t halts_bytes(const sm_board *b, bool loops_only)
{
    size_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        n += loops_only && b->halts[i].kind != SM_HALT_LOOP ? 0 : halt_bytes(&b->halts[i]);
    return n;
}

static size_t circuits_bytes(const sm_board *b)
{
    size_t n = 0;
    for (uint32_t i = 0; i < b->n_circuits; i++)
        n += circuit_bytes(&b->circuits[i]);
    return n;
}

uint32_t sm_board_loops(const sm_board *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        n += b->halts[i].kind == SM_HALT_LOOP;
    return n;
}

static sm_halt *oldest_loop(const sm_board *b)
{
    sm_halt *oldest = NULL;
    for (uint32_t i = 0; i < b->n; i++) {
        sm_halt *h = &b->halts[i];
        if (h->kind == SM_HALT_LOOP && (oldest == NULL || h->at < oldest->at))
            oldest = h;
    }
    return oldest;
}

/* Room for a run that loops. */
static bool make_room_for_loop(sm_board *b, const sm_halt *h)
{
    uint32_t n = sm_board_loops(b);
    size_t bytes = halts_bytes(b, true) + halt_bytes(h);
    while (n >= SM_LOOP_HALTS_MAX || bytes > SM_BOARD_MAX / 2) {
        sm_halt *oldest = oldest_loop(b);
        if (oldest == NULL || h->at - oldest->at < SM_LOOP_FIRM_MS)
            return false;
        bytes -= halt_bytes(oldest);
        n--;
        sm_board_remove(b, oldest);
    }
    return b->n < SM_HALTS_MAX;
}

/* Room for what a person stops. Without loops, whoever writes the board finds out whether it fits.
 */
static bool make_room_for_person(sm_board *b, const sm_halt *h)
{
    size_t bytes = 64 + halts_bytes(b, false) + circuits_bytes(b) + halt_bytes(h);
    sm_halt *oldest;
    while ((b->n >= SM_HALTS_MAX || bytes > SM_BOARD_MAX) && (oldest = oldest_loop(b)) != NULL) {
        bytes -= halt_bytes(oldest);
        sm_board_remove(b, oldest);
    }
    return b->n < SM_HALTS_MAX;
}

/* ---- changing and asking ---------------------------------------------------------------------*/

sm_halt *sm_board_find(const sm_board *b, sm_halt_kind kind, sm_str name)
{
    for (uint32_t i = 0; i < b->n; i++) {
        sm_halt *h = &b->halts[i];
        if (h->kind == kind && (kind == SM_HALT_ALL || sm_str_eq(h->name, name)))
            return h;
    }
    return NULL;
}

bool sm_board_add(sm_arena *a, sm_board *b, const sm_halt *h)
{
    if (!(h->kind == SM_HALT_LOOP ? make_room_for_loop : make_room_for_person)(b, h))
        return false;
    sm_halt *more = sm_arena_alloc(a, (b->n + 1) * sizeof *more);
    if (more == NULL)
        return false;
    if (b->n > 0)
        memcpy(more, b->halts, b->n * sizeof *more);
    more[b->n++] = *h;
    b->halts = more;
    return true;
}

void sm_board_remove(sm_board *b, sm_halt *h)
{
    size_t behind = (size_t)(b->halts + b->n - (h + 1));
    memmove(h, h + 1, behind * sizeof *h);
    b->n--;
}

sm_circuit *sm_board_circuit(const sm_board *b, const sm_circuit_name *of)
{
    for (uint32_t i = 0; i < b->n_circuits; i++) {
        sm_circuit *c = &b->circuits[i];
        if (sm_str_eq(c->of.tool, of->tool) && sm_str_eq(c->of.upstream, of->upstream) &&
            sm_str_eq(c->of.tenant, of->tenant))
            return c;
    }
    return NULL;
}

static void remove_circuit(sm_board *b, sm_circuit *c)
{
    size_t behind = (size_t)(b->circuits + b->n_circuits - (c + 1));
    memmove(c, c + 1, behind * sizeof *c);
    b->n_circuits--;
}

void sm_board_tidy(sm_board *b, int64_t now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const sm_halt *h = &b->halts[i];
        if (h->kind != SM_HALT_LOOP || now - h->at < SM_LOOP_KEPT_MS)
            b->halts[n++] = *h;
    }
    b->n = n;
    n = 0;
    for (uint32_t i = 0; i < b->n_circuits; i++) {
        const sm_circuit *c = &b->circuits[i];
        if (c->state != SM_CIRCUIT_CLOSED || now - c->since < SM_CIRCUIT_KEPT_MS)
            b->circuits[n++] = *c;
    }
    b->n_circuits = n;
}

static sm_circuit *oldest_closed(const sm_board *b)
{
    sm_circuit *oldest = NULL;
    for (uint32_t i = 0; i < b->n_circuits; i++) {
        sm_circuit *c = &b->circuits[i];
        if (c->state == SM_CIRCUIT_CLOSED && (oldest == NULL || c->since < oldest->since))
            oldest = c;
    }
    return oldest;
}

static bool make_room(sm_board *b, const sm_circuit *c)
{
    size_t bytes = circuits_bytes(b) + circuit_bytes(c);
    while (b->n_circuits >= SM_CIRCUITS_MAX || bytes > SM_BOARD_MAX / 4) {
        sm_circuit *oldest = oldest_closed(b);
        if (oldest == NULL)
            return false;
        bytes -= circuit_bytes(oldest);
        remove_circuit(b, oldest);
    }
    return true;
}

static bool is_listed(const sm_circuit *c)
{
    return c->state != SM_CIRCUIT_CLOSED || c->failures > 0;
}

/* How many failures there are of a closed one is not for the board. */
bool sm_board_says(const sm_board *b, const sm_circuit *c)
{
    const sm_circuit *there = sm_board_circuit(b, &c->of);
    if (there == NULL || !is_listed(c))
        return (there == NULL) == !is_listed(c);
    if (there->state != c->state)
        return false;
    if (c->state == SM_CIRCUIT_CLOSED)
        return c->since - there->since < SM_CIRCUIT_LATE_MS;
    return there->since == c->since && there->until == c->until && there->failures == c->failures;
}

bool sm_board_set_circuit(sm_arena *a, sm_board *b, const sm_circuit *c)
{
    sm_circuit *there = sm_board_circuit(b, &c->of);
    if (there != NULL)
        remove_circuit(b, there);
    if (!is_listed(c))
        return true;
    if (!make_room(b, c))
        return false;
    sm_circuit *more = sm_arena_alloc(a, (b->n_circuits + 1) * sizeof *more);
    if (more == NULL)
        return false;
    if (b->n_circuits > 0)
        memcpy(more, b->circuits, b->n_circuits * sizeof *more);
    more[b->n_circuits++] = *c;
    b->circuits = more;
    return true;
}

bool sm_halt_yields(const sm_halt *h, sm_str bound)
{
    return bound.n == 0 || h->kind == SM_HALT_LOOP ||
           (h->bound.n > 0 && sm_scope_within(h->bound, bound));
}

bool sm_halt_covers(const sm_halt *h, sm_str scope)
{
    return h->kind == SM_HALT_ALL ||
           (h->kind == SM_HALT_SCOPE && sm_scope_within(scope, h->name)) ||
           (h->kind == SM_HALT_LOOP && sm_str_eq(scope, h->name));
}

const sm_halt *sm_board_stops(const sm_board *b, sm_str scope, sm_str tool)
{
    const sm_halt *loop = NULL; /* what a person says comes first */
    for (uint32_t i = 0; i < b->n; i++) {
        const sm_halt *h = &b->halts[i];
        bool stops = h->kind == SM_HALT_TOOL ? sm_glob_matches(h->name, tool)
                                             : scope.p != NULL && sm_halt_covers(h, scope);
        if (stops && h->kind != SM_HALT_LOOP)
            return h;
        if (stops)
            loop = h;
    }
    return loop;
}
