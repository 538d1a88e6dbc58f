/*
 * The attempts of an effect, told from what befell them.
 *
 * The story has an entry for each change: "started" opens an attempt, "doubted" and "resolved" are
 * about the newest one, the others name theirs by its fence.
 */
#include "cli/story.h"
#include "cli/when.h"

#define ATTEMPTS_MAX 200u

typedef struct attempt {
    sm_str number, fence, actor, started, ended;
    sm_str how;
    const char *remark;
} attempt;

typedef struct attempts {
    attempt v[ATTEMPTS_MAX];
    size_t n;
} attempts;

static attempt *by_fence(attempts *all, sm_str fence)
{
    for (size_t i = all->n; fence.p != NULL && i > 0; i--) {
        if (sm_str_eq(all->v[i - 1].fence, fence))
            return &all->v[i - 1];
    }
    return all->n > 0 ? &all->v[all->n - 1] : NULL;
}

/* One note of an entry: "started", "settled", ... */
static void take_note(attempts *all, const sm_json *entry, sm_str note)
{
    sm_str at = cli_member(entry, "at"), kind = cli_member(entry, "kind");
    if (sm_str_is(note, "started")) {
        if (all->n < ATTEMPTS_MAX)
            all->v[all->n++] = (attempt){.number = cli_member(entry, "attempt"),
                                         .fence = cli_member(entry, "fence"),
                                         .actor = cli_member(entry, "actor"),
                                         .started = at};
        return;
    }
    bool of_newest = sm_str_is(note, "doubted") || sm_str_is(note, "resolved");
    attempt *a = by_fence(all, of_newest ? (sm_str){0} : cli_member(entry, "fence"));
    if (a == NULL)
        return;
    a->ended = at;
    if (sm_str_is(note, "doubted"))
        a->how = SM_STR("nobody knows");
    else if (sm_str_is(note, "resolved"))
        a->remark = ", resolved by a person";
    else if (sm_str_is(note, "late") || sm_str_is(note, "double_effect"))
        a->remark = ", late";
    if (!of_newest && kind.p != NULL)
        a->how = kind;
}

static void put_time(cli_table *t, sm_str text)
{
    int64_t ms;
    char when[CLI_WHEN_TEXT] = "";
    if (text.p != NULL && cli_when_parse(text, &ms))
        cli_when_text(ms, when);
    cli_table_cell(t, CLI_PLAIN, sm_str_from(when));
}

void cli_put_attempts(sm_buf *out, size_t indent, const sm_json *list)
{
    static const cli_column columns[] = {
        {"ATTEMPT", false, true}, {"FENCE", false, true},  {"STARTED", false, false},
        {"BY", true, false},      {"ENDED", false, false}, {"HOW", true, false},
    };
    attempts all = {.n = 0};
    const sm_json *entry = list + 1;
    for (uint32_t i = 0; i < list->len; i++, entry = sm_json_next(entry)) {
        sm_str what = cli_member(entry, "what");
        for (size_t at = 0; at < what.n;) {
            const char *comma = memchr(what.p + at, ',', what.n - at);
            size_t n = comma == NULL ? what.n - at : (size_t)(comma - what.p) - at;
            take_note(&all, entry, (sm_str){what.p + at, n});
            at += n + 1;
        }
    }
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < all.n; i++) {
        const attempt *a = &all.v[i];
        cli_table_cell(&table, CLI_PLAIN, a->number);
        cli_table_cell(&table, CLI_PLAIN, a->fence);
        put_time(&table, a->started);
        cli_table_cell(&table, CLI_PLAIN, a->actor);
        put_time(&table, a->ended);
        cli_table_printf(&table, CLI_PLAIN, "%.*s%s", SM_FMT(a->how),
                         a->remark == NULL ? "" : a->remark);
    }
    cli_table_put(&table, indent, all.n > 0, out);
    cli_table_fini(&table);
}
