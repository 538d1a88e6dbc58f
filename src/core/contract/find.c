/* Looking up what applies to a call: by name, by pattern, by variant. */
#include <stdlib.h>

#include "base/fold.h"
#include "base/limits.h"
#include "core/contract.h"
#include "core/glob.h"

static int compare_names(sm_str a, sm_str b)
{
    int c = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);
    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

/* Exact names in order, then patterns from most to least specific. */
static int by_rank(const void *a, const void *b)
{
    const sm_declared_tool *x = *(const sm_declared_tool *const *)a,
                           *y = *(const sm_declared_tool *const *)b;
    if (x->glob != y->glob)
        return x->glob ? 1 : -1;
    if (x->glob && x->literals != y->literals)
        return x->literals > y->literals ? -1 : 1;
    return compare_names(x->name, y->name);
}

bool sm_contracts_index(sm_contracts *set)
{
    const sm_declared_tool **index =
        sm_arena_zalloc(&set->arena, set->tool_count + 1, sizeof *index);
    if (index == NULL)
        return false;
    set->exact_count = 0;
    for (uint32_t i = 0; i < set->tool_count; i++) {
        index[i] = &set->tools[i];
        set->exact_count += !set->tools[i].glob;
    }
    qsort(index, set->tool_count, sizeof *index, by_rank);
    set->index = index;
    return true;
}

const sm_declared_tool *sm_contracts_tool(const sm_contracts *set, sm_str name)
{
    uint32_t low = 0, high = set->exact_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int c = compare_names(name, set->index[middle]->name);
        if (c == 0)
            return set->index[middle];
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    for (uint32_t i = set->exact_count; i < set->tool_count; i++) {
        if (sm_glob_matches(set->index[i]->name, name))
            return set->index[i];
    }
    return NULL;
}

/* A text in its folded form. */
typedef struct folded {
    uint32_t of[SM_TOOL_MAX];
    size_t n;
} folded;

static void fold(sm_str text, folded *out)
{
    uint32_t c;
    out->n = 0;
    while (out->n < SM_TOOL_MAX && (c = sm_fold_next(&text, true)) != 0)
        out->of[out->n++] = c;
}

/* As sm_glob_matches, on folded characters. */
static bool fold_matches(const folded *pattern, const folded *name)
{
    size_t p = 0, n = 0, star = SIZE_MAX, mark = 0;
    while (n < name->n) {
        if (p < pattern->n && pattern->of[p] == '*') {
            star = p++;
            mark = n;
        } else if (p < pattern->n && (pattern->of[p] == '?' || pattern->of[p] == name->of[n])) {
            p++;
            n++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            n = ++mark;
        } else {
            return false;
        }
    }
    while (p < pattern->n && pattern->of[p] == '*')
        p++;
    return p == pattern->n;
}

const sm_declared_tool *sm_contracts_rival(const sm_contracts *set, sm_str name)
{
    const sm_declared_tool *own = sm_contracts_tool(set, name);
    if (own != NULL && !own->glob)
        return NULL;
    for (uint32_t i = 0; i < set->exact_count; i++) {
        if (sm_fold_alike_word(set->index[i]->name, name))
            return set->index[i];
    }
    if (set->exact_count == set->tool_count)
        return NULL;
    folded plain, pattern;
    fold(name, &plain);
    for (uint32_t i = set->exact_count; i < set->tool_count && set->index[i] != own; i++) {
        const sm_declared_tool *t = set->index[i];
        fold(t->name, &pattern);
        if (fold_matches(&pattern, &plain) &&
            !(own != NULL && sm_fold_alike_word(t->name, own->name)))
            return t;
    }
    return NULL;
}

const sm_contract *sm_contracts_find(const sm_contracts *set, sm_str name)
{
    const sm_declared_tool *t = sm_contracts_tool(set, name);
    if (t != NULL)
        return &t->contract;
    return set->unlisted == SM_UNLISTED_HIDE ? NULL : &set->unlisted_contract;
}

const sm_contract *sm_contract_variant(const sm_contract *c, const sm_json *args)
{
    const sm_contract *found = c, *doubted = NULL; /* the first that writes and may apply */
    for (uint32_t i = 0; i < c->variant_count && found == c; i++) {
        const sm_variant *v = &c->variants[i];
        if (sm_conditions_hold(&v->when, args, false))
            found = &v->contract;
        else if (doubted == NULL && v->contract.class != SM_CLASS_READ &&
                 sm_conditions_doubtful(&v->when, args))
            doubted = &v->contract;
    }
    /* A read is not recorded: nothing becomes one by being hard to judge. */
    return doubted != NULL && found->class == SM_CLASS_READ ? doubted : found;
}

sm_exception sm_contract_exception(const sm_contract *c)
{
    static const sm_exception by_class[] = {
        [SM_CLASS_READ] = SM_EXCEPTION_PASSES,
        [SM_CLASS_WRITE_IDEMPOTENT] = SM_EXCEPTION_FAILED,
        [SM_CLASS_WRITE] = SM_EXCEPTION_DOUBT_IF_VAGUE,
        [SM_CLASS_IRREVERSIBLE] = SM_EXCEPTION_DOUBT,
    };
    return by_class[c->class];
}

sm_strategy sm_contract_strategy(const sm_contract *c)
{
    return c->class == SM_CLASS_READ ? SM_KEY_NONE : (sm_strategy)c->key.strategy;
}

bool sm_contract_only_reads(const sm_contract *c)
{
    return c->class == SM_CLASS_READ && c->variant_count == 0 && c->input == NULL;
}
