/* From a file's text to its effective contracts: reading entries and putting layers together. */
#include <stdlib.h>

#include "base/duration.h"
#include "base/limits.h"
#include "core/contract.h"
#include "core/glob.h"
#include "json/yaml.h"

static const sm_json_limits file_limits = {
    .bytes = SM_CONTRACT_BYTES_MAX,
    .depth = SM_CONTRACT_DEPTH_MAX,
    .values = SM_JSON_VALUES_MAX,
};

/* One mapping of tool fields as it stands in the file: `set` says which fields it gives. */
typedef struct layer {
    sm_contract values;
    uint64_t set;
    const sm_json *mapping;
    sm_layer from;
} layer;

static const sm_field *field(int id)
{
    return &sm_contract_group.fields[id];
}

/* ---- layering --------------------------------------------------------------------------------*/

static void set_class_default(sm_contract *c, sm_contract_field id)
{
    c->origin[id] = (sm_origin){.layer = SM_FROM_CLASS};
}

/* The table of what each class means. */
static void apply_class(sm_contract *c)
{
    static const struct {
        int64_t window_ms;
        int failures;
        sm_doubt_chain on_in_doubt;
        bool barrier;
    } by_class[] = {
        [SM_CLASS_READ] = {0, SM_FAILURES_RETRY, {{0}, 0}, false},
        [SM_CLASS_WRITE_IDEMPOTENT] = {86400000,
                                       SM_FAILURES_RETRY,
                                       {{SM_DOUBT_RERUN, SM_DOUBT_HOLD}, 2},
                                       false},
        [SM_CLASS_WRITE] = {86400000, SM_FAILURES_RETRY, {{SM_DOUBT_HOLD}, 1}, false},
        [SM_CLASS_IRREVERSIBLE] = {7 * 86400000, SM_FAILURES_REPLAY, {{SM_DOUBT_HOLD}, 1}, true},
    };
    c->window_ms = by_class[c->class].window_ms;
    c->failures = by_class[c->class].failures;
    c->on_in_doubt = by_class[c->class].on_in_doubt;
    c->barrier = by_class[c->class].barrier;
    set_class_default(c, SM_F_WINDOW);
    set_class_default(c, SM_F_FAILURES);
    set_class_default(c, SM_F_ON_IN_DOUBT);
    set_class_default(c, SM_F_BARRIER);
}

static void overlay(sm_contract *c, const layer *from, sm_contract_field id)
{
    const sm_field *f = field(id);
    memcpy((char *)c + f->offset, (const char *)&from->values + f->offset, f->size);
    c->origin[id] = (sm_origin){from->from, sm_json_find(from->mapping, sm_str_from(f->name))};
}

static bool given(const sm_contract *c, sm_contract_field id)
{
    return c->origin[id].layer >= SM_FROM_DEFAULTS;
}

/* At how many copies of a call it is blocked, and its run stopped, where nobody says otherwise: at
 * least so many copies after the step before. */
#define LOOP_BLOCK 5
#define LOOP_TRIP  8

static int64_t step_after(int64_t step, int64_t pause, int64_t usual)
{
    return step + pause > usual ? step + pause : usual;
}

/* A write that is repeated too often is blocked, and then its run is stopped. A tool that only
 * reads has the steps that are given, and so has a write of which nothing is recorded: nobody knows
 * what these returned. */
static void complete_ladder(sm_contract *c)
{
    sm_loop_rule *r = &c->loop;
    bool whole = c->class != SM_CLASS_READ && c->key.strategy != SM_KEY_NONE;
    if (r->block < 0)
        r->block = whole ? step_after(r->warn, 2, LOOP_BLOCK) : 0;
    if (r->trip < 0)
        r->trip =
            whole && r->block > 0 ? step_after(r->block, LOOP_TRIP - LOOP_BLOCK, LOOP_TRIP) : 0;
}

/* Values that follow from others, where nobody gave them. */
static void derive(sm_contract *c)
{
    if (sm_json_find(c->origin[SM_F_KEY].given, SM_STR("strategy")) == NULL && c->key.fields.n > 0)
        c->key.strategy = SM_KEY_FIELDS;
    complete_ladder(c);
    bool named_by_caller = c->key.strategy == SM_KEY_STEP || c->key.strategy == SM_KEY_EXPLICIT;
    if (!given(c, SM_F_ON_DRIFT)) {
        c->on_drift = named_by_caller ? SM_DRIFT_CONFLICT : SM_DRIFT_REPLAY;
        c->origin[SM_F_ON_DRIFT] = (sm_origin){.layer = SM_FROM_DERIVED};
    }
    if (!given(c, SM_F_STEP) && c->key.strategy == SM_KEY_STEP) {
        c->step = SM_NEED_REQUIRED;
        c->origin[SM_F_STEP] = (sm_origin){.layer = SM_FROM_DERIVED};
    }
    if (!given(c, SM_F_RESULT_WINDOW)) {
        c->result_window_ms = c->window_ms;
        c->origin[SM_F_RESULT_WINDOW] = (sm_origin){.layer = SM_FROM_DERIVED};
    }
}

static const sm_places *compile(sm_loader *l, const sm_pointers *list)
{
    sm_places *places = sm_places_new(l->arena);
    if (places == NULL) {
        l->failed = true;
        return NULL;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        if (sm_places_add(places, l->arena, &list->v[i], NULL) != SM_OK)
            l->failed = true;
    }
    return places;
}

/* Compiles what the key is made of, and what does not count in results. */
static void compile_pointers(sm_loader *l, sm_contract *c)
{
    c->key.places = compile(l, c->key.strategy == SM_KEY_FIELDS ? &c->key.fields : &c->key.ignore);
    if (c->loop.volatile_results.n > 0)
        c->loop.places = compile(l, &c->loop.volatile_results);
}

/* Puts the layers together, weakest first. */
static void make_effective(sm_loader *l, const layer *const *layers, size_t n, sm_contract *out)
{
    *out = *(const sm_contract *)sm_contract_group.defaults;
    for (size_t i = 0; i < n; i++) {
        if (layers[i]->set & (uint64_t)1 << SM_F_CLASS)
            overlay(out, layers[i], SM_F_CLASS);
    }
    apply_class(out);
    for (size_t i = 0; i < n; i++) {
        for (int id = SM_F_CLASS + 1; id < SM_F_COUNT; id++) {
            if (layers[i]->set & (uint64_t)1 << id)
                overlay(out, layers[i], (sm_contract_field)id);
        }
    }
    derive(out);
    compile_pointers(l, out);
}

/* ---- the file's entries ----------------------------------------------------------------------*/

/* `also` is a field of the mapping that was taken out of it before. */
static bool read_layer(sm_loader *l, const sm_json *mapping, const char *what, const char *also,
                       sm_layer from, layer *out)
{
    *out = (layer){.mapping = mapping, .from = from};
    out->values = *(const sm_contract *)sm_contract_group.defaults;
    if (mapping->type != SM_JSON_OBJECT) {
        sm_complain(l, mapping, "%s is a mapping of fields such as { class: write }, found %s",
                    what, sm_found(l, mapping));
        return false;
    }
    sm_group group = sm_contract_group;
    group.also = also;
    sm_group_read(l, &group, what, mapping, &out->values, &out->set);
    return true;
}

/* A mapping without some of its members; the loader's tables do not know those. */
static const sm_json *without(sm_loader *l, const sm_json *mapping, const char *name)
{
    if (sm_json_find(mapping, sm_str_from(name)) == NULL)
        return mapping;
    sm_str token = sm_str_from(name);
    sm_pointer pointer = {.tokens = &token, .count = 1};
    sm_places *places = sm_places_new(l->arena);
    const sm_json *out = mapping;
    if (places == NULL || sm_places_add(places, l->arena, &pointer, NULL) != SM_OK ||
        sm_json_drop(l->arena, mapping, places, &out) != SM_OK)
        l->failed = true;
    return out;
}

/* A tool's budgets hold beside those of `defaults`, which are for all calls together. */
static void nest_budgets(sm_loader *l, const layer *defaults, const sm_declared_tool *t,
                         sm_contract *c)
{
    sm_budgets all = defaults != NULL ? defaults->values.budget : (sm_budgets){0};
    uint32_t n = c->budget.n + all.n;
    if (n > SM_BUDGETS_MAX) {
        sm_complain(l, c->origin[SM_F_BUDGET].given,
                    "budget: a tool has at most %u, those of defaults included; found %u",
                    SM_BUDGETS_MAX, n);
        return;
    }
    sm_budget_rule *v = sm_loader_alloc(l, n, sizeof *v);
    if (v == NULL)
        return;
    for (uint32_t i = 0; i < n; i++) {
        v[i] = i < c->budget.n ? c->budget.v[i] : all.v[i - c->budget.n];
        if (i < c->budget.n)
            v[i].of = t->name;
    }
    c->budget = (sm_budgets){v, n};
}

/* A budget or limit belongs to the entry that it is written in. */
static void own_budget(sm_loader *l, const layer *defaults, const sm_declared_tool *t,
                       sm_contract *c)
{
    if (c->origin[SM_F_BUDGET].layer >= SM_FROM_TOOL)
        nest_budgets(l, defaults, t, c);
    if (c->origin[SM_F_LIMIT].layer >= SM_FROM_TOOL)
        c->limit.of = t->name;
}

static void read_variant(sm_loader *l, const sm_json *item, const layer *defaults,
                         const layer *tool, const sm_declared_tool *t, sm_variant *v)
{
    if (item->type != SM_JSON_OBJECT) {
        sm_complain(l, item, "a variant is a mapping with when and the fields it changes, found %s",
                    sm_found(l, item));
        return;
    }
    v->given = sm_json_find(item, SM_STR("when"));
    if (v->given == NULL)
        sm_complain(l, item, "a variant needs the field \"when\"");
    else
        sm_conditions_read(l, v->given, &v->when);
    layer *own = sm_loader_alloc(l, 1, sizeof *own);
    if (own == NULL ||
        !read_layer(l, without(l, item, "when"), "a variant", "when", SM_FROM_VARIANT, own))
        return;
    make_effective(l, (const layer *[]){defaults, tool, own}, 3, &v->contract);
    own_budget(l, defaults, t, &v->contract);
}

static void read_variants(sm_loader *l, const sm_json *list, const layer *defaults,
                          const layer *tool, sm_declared_tool *t)
{
    if (list->type != SM_JSON_ARRAY || list->len == 0 || list->len > SM_VARIANTS_MAX) {
        sm_complain(l, list, "variants: expected a list of 1 to %u mappings, found %s",
                    SM_VARIANTS_MAX, sm_found(l, list));
        return;
    }
    sm_variant *v = sm_loader_alloc(l, list->len, sizeof *v);
    if (v == NULL)
        return;
    const sm_json *item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item)) {
        read_variant(l, item, defaults, tool, t, &v[i]);
        v[i].contract.variant = i + 1;
    }
    t->contract.variants = v;
    t->contract.variant_count = list->len;
}

static void check_name(sm_loader *l, const sm_contracts *set, const sm_declared_tool *t)
{
    sm_parsed_call call = {.scope = SM_STR("check"), .tool = t->name};
    sm_fault fault;
    if (sm_call_check(&call, &fault) != SM_OK)
        sm_complain(l, t->given, "%s", fault.text);
    if (memchr(t->name.p, '[', t->name.n) != NULL)
        sm_complain(l, t->given, "patterns know * and ? only; write one entry for each name");
    for (const sm_declared_tool *other = set->tools; t->glob && other < t; other++) {
        if (!other->glob || other->literals != t->literals || t->name.n > SM_TOOL_MAX ||
            other->name.n > SM_TOOL_MAX || !sm_glob_meet(other->name, t->name))
            continue;
        sm_complain(l, t->given,
                    "\"%.*s\" and \"%.*s\" can match the same tool with equally many literal "
                    "characters; make one of them more specific",
                    SM_FMT(t->name), SM_FMT(other->name));
        break;
    }
}

static void read_tool(sm_loader *l, sm_contracts *set, const sm_json *name, const layer *defaults)
{
    sm_declared_tool *t = &set->tools[set->tool_count];
    *t = (sm_declared_tool){.name = sm_json_text(name),
                            .glob = sm_glob_is(sm_json_text(name)),
                            .literals = sm_glob_literals(sm_json_text(name)),
                            .given = name};
    check_name(l, set, t);
    layer *own = sm_loader_alloc(l, 1, sizeof *own);
    const sm_json *mapping = name + 1;
    const sm_json *variants = sm_json_find(mapping, SM_STR("variants"));
    if (own == NULL ||
        !read_layer(l, without(l, mapping, "variants"), "a tool", "variants", SM_FROM_TOOL, own))
        return;
    make_effective(l, (const layer *[]){defaults, own}, 2, &t->contract);
    own_budget(l, defaults, t, &t->contract);
    if (variants != NULL)
        read_variants(l, variants, defaults, own, t);
    set->tool_count++;
}

typedef struct file {
    int64_t version;
    int unlisted;
    bool trust_annotations;
    const sm_json *defaults;
    const sm_json *tools;
} file;

static void keep(sm_loader *l, const sm_json *value, void *out)
{
    if (value->type == SM_JSON_OBJECT)
        *(const sm_json **)out = value;
    else
        sm_complain(l, value, "expected a mapping here, found %s", sm_found(l, value));
}

static const char *const unlisted_names[] = {"write", "hold", "hide", NULL};
static const sm_field file_fields[] = {
    {"version", SM_KIND_COUNT, SM_FIELD(file, version), SM_FIELD_REQUIRED, .min = 1, .max = 1},
    {"unlisted", SM_KIND_ENUM, SM_FIELD(file, unlisted), .names = unlisted_names},
    {"trust_annotations", SM_KIND_SWITCH, SM_FIELD(file, trust_annotations)},
    {"defaults", SM_KIND_CUSTOM, SM_FIELD(file, defaults), .read = keep},
    {"tools", SM_KIND_CUSTOM, SM_FIELD(file, tools), SM_FIELD_REQUIRED, .read = keep},
};
static const sm_group file_group = {file_fields, sizeof file_fields / sizeof file_fields[0],
                                    .size = sizeof(file)};

/* NULL when out of memory, or if this is not a contract file. */
static const layer *read_file(sm_loader *l, sm_contracts *set, const sm_json *root)
{
    if (root->type != SM_JSON_OBJECT) {
        sm_complain(l, root, "a contract file is a mapping with version and tools, found %s",
                    sm_found(l, root));
        return NULL;
    }
    file f = {.trust_annotations = true};
    sm_group_read(l, &file_group, "a contract file", root, &f, NULL);
    set->unlisted = f.unlisted;
    set->trust_annotations = f.trust_annotations;
    layer *defaults = sm_loader_alloc(l, 1, sizeof *defaults);
    if (defaults == NULL)
        return NULL;
    if (f.defaults != NULL)
        read_layer(l, f.defaults, "defaults", NULL, SM_FROM_DEFAULTS, defaults);
    const sm_json *limit = sm_json_find(f.defaults, SM_STR("limit"));
    if (limit != NULL)
        sm_complain(l, limit,
                    "limit names an argument, so it belongs to the tools or patterns that have it; "
                    "move it there");
    if (f.tools == NULL)
        return defaults;
    if (f.tools->len > SM_TOOLS_MAX) {
        sm_complain(l, f.tools, "a file may list at most %u tools", SM_TOOLS_MAX);
        return defaults;
    }
    set->tools = sm_loader_alloc(l, f.tools->len, sizeof *set->tools);
    if (set->tools == NULL)
        return defaults;
    const sm_json *name = f.tools + 1;
    uint32_t globs = 0;
    for (uint32_t i = 0; i < f.tools->len; i++, name = sm_json_next(name + 1)) {
        globs += sm_glob_is(sm_json_text(name));
        if (globs > SM_GLOBS_MAX) {
            sm_complain(l, name, "a file may list at most %u patterns", SM_GLOBS_MAX);
            return defaults;
        }
        read_tool(l, set, name, defaults);
    }
    return defaults;
}

/* Of a tool that is not listed a repeat is only warned of, unless the defaults say more. */
static void only_warn(sm_loop_rule *r, const sm_json *given)
{
    if (given == NULL || sm_json_find(given, SM_STR("block")) == NULL)
        r->block = 0;
    if (given == NULL || sm_json_find(given, SM_STR("trip")) == NULL)
        r->trip = 0;
}

/* An unlisted tool is a write that is remembered for ten minutes, so that retries and lost answers
 * are caught, and that runs again if the repeat is deliberate. The file's defaults say when a
 * repeat counts as deliberate, their budget is for all calls, and so is their loop detection. The
 * rest of the defaults applies to listed tools only. */
static void make_unlisted(sm_loader *l, sm_contracts *set, const layer *defaults)
{
    const uint64_t obeyed = (uint64_t)1 << SM_F_REPEAT_AFTER |
                            (uint64_t)1 << SM_F_DELIVERED_WITHIN | (uint64_t)1 << SM_F_BUDGET |
                            (uint64_t)1 << SM_F_LOOP;
    layer few = defaults == NULL ? (layer){0} : *defaults;
    sm_contract *c = &set->unlisted_contract;
    few.set &= obeyed;
    make_effective(l, (const layer *[]){&few}, 1, c);
    c->window_ms = c->result_window_ms = 600000;
    c->on_repeat = SM_REPEAT_RUN;
    only_warn(&c->loop, c->origin[SM_F_LOOP].given);
    if (c->loop.on && c->loop.poll)
        sm_complain(l, c->origin[SM_F_LOOP].given, SM_POLL_IS_NARROW);
    c->approval =
        (sm_approval){.on = set->unlisted == SM_UNLISTED_HOLD, .quorum = 1, .expires_ms = 3600000};
    const sm_contract_field changed[] = {SM_F_WINDOW, SM_F_RESULT_WINDOW, SM_F_ON_REPEAT,
                                         SM_F_APPROVAL, SM_F_LOOP};
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
        c->origin[changed[i]] = (sm_origin){.layer = SM_FROM_UNLISTED};
    sm_contract_lint_repeats(l, c);
}

/* ---- reading a file --------------------------------------------------------------------------*/

static bool ends_with(sm_str s, const char *end)
{
    size_t n = strlen(end);
    return s.n >= n && memcmp(s.p + s.n - n, end, n) == 0;
}

sm_err sm_tree_read(sm_arena *a, sm_str name, sm_str text, const sm_json **root, sm_fault *fault)
{
    size_t i = 0;
    while (i < text.n && strchr(" \t\r\n", text.p[i]) != NULL && text.p[i] != '\0')
        i++;
    bool json = ends_with(name, ".json");
    if (json || (i < text.n && text.p[i] == '{')) {
        sm_err e = sm_json_read(a, text, &file_limits, root, fault);
        if (e == SM_OK || json)
            return e;
    }
    return sm_yaml_read(a, text, &file_limits, root, fault);
}

static sm_contracts *contracts_new(sm_str name, sm_str text)
{
    sm_contracts *set = calloc(1, sizeof *set);
    if (set == NULL)
        return NULL;
    atomic_init(&set->holders, 1);
    sm_arena_init(&set->arena, 4 * SM_ARENA_MAX);
    set->name = sm_arena_text(&set->arena, name);
    set->text = sm_arena_text(&set->arena, text);
    set->trust_annotations = true;
    if (set->name.p != NULL && set->text.p != NULL)
        return set;
    sm_contracts_free(set);
    return NULL;
}

sm_contracts *sm_contracts_hold(sm_contracts *set)
{
    atomic_fetch_add(&set->holders, 1);
    return set;
}

void sm_contracts_free(sm_contracts *set)
{
    if (set == NULL || atomic_fetch_sub(&set->holders, 1) > 1)
        return;
    sm_pattern_fini_all(set->patterns);
    sm_arena_fini(&set->arena);
    free(set);
}

static sm_err finish(sm_loader *l, sm_contracts *set, sm_contracts **out)
{
    set->patterns = l->patterns;
    sm_err e = l->failed ? SEMEL_E_NOMEM : l->report->errors > 0 ? SEMEL_E_INVALID : SM_OK;
    sm_report_sort(l->report);
    if (e == SM_OK)
        *out = set;
    else
        sm_contracts_free(set);
    return e;
}

sm_err sm_contracts_read(sm_str name, sm_str text, sm_contracts **out, sm_report *report)
{
    *out = NULL;
    sm_contracts *set = contracts_new(name, text);
    if (set == NULL)
        return SEMEL_E_NOMEM;
    sm_loader l = {.arena = &set->arena, .report = report};
    const sm_json *root;
    sm_fault fault;
    sm_err e = sm_tree_read(l.arena, name, text, &root, &fault);
    if (e == SEMEL_E_NOMEM)
        l.failed = true;
    if (e != SM_OK) {
        sm_report_add(report, SM_ERROR, fault.at, "%s", fault.text);
        return finish(&l, set, out);
    }
    make_unlisted(&l, set, read_file(&l, set, root));
    if (!sm_contracts_index(set))
        l.failed = true;
    for (uint32_t i = 0; i < set->tool_count && !l.failed; i++) {
        const sm_contract *c = &set->tools[i].contract;
        sm_contract_check(&l, set, &set->tools[i], c);
        for (uint32_t v = 0; v < c->variant_count; v++)
            sm_contract_check(&l, set, &set->tools[i], &c->variants[v].contract);
    }
    return finish(&l, set, out);
}

sm_err sm_contracts_none(sm_contracts **out)
{
    *out = NULL;
    sm_contracts *set = contracts_new(SM_STR("(none)"), SM_STR(""));
    sm_report report;
    if (set == NULL)
        return SEMEL_E_NOMEM;
    sm_err e = sm_report_init(&report, SM_STR(""));
    if (e != SM_OK) {
        sm_contracts_free(set);
        return e;
    }
    sm_loader l = {.arena = &set->arena, .report = &report};
    make_unlisted(&l, set, NULL);
    e = finish(&l, set, out);
    sm_report_fini(&report);
    return e;
}
