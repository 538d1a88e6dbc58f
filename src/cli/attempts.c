/*
 * The attempts of an effect, told from what befell them.
 *
 * The story has an entry for each change: "started" opens an attempt, "doubted" and "resolved" are
 * about the newest one, the others name theirs by its fence. Evidence that came late and belongs to
 * no attempt of this story, or to one that had said already how it ended, has a line of its own: it
 * changed nothing, so it must not look as if it had.
 */
#include "base/stamp.h"
#include "cli/story.h"
#include "cli/when.h"

#define ATTEMPTS_MAX 200u

typedef struct attempt {
    sm_str number, fence, actor, started, ended;
    sm_str how, generation; /* the generation if it is another one */
    const char *remark;
    bool told; /* it said itself how it ended */
} attempt;

typedef struct attempts {
    attempt v[ATTEMPTS_MAX];
    size_t n;
} attempts;

static attempt *add(attempts *all, attempt a)
{
    if (all->n == ATTEMPTS_MAX)
        return NULL;
    all->v[all->n] = a;
    return &all->v[all->n++];
}

/* The attempt that started with a fence, or the newest if the entry names none. */
static attempt *find(attempts *all, sm_str fence)
{
    for (size_t i = all->n; i > 0; i--) {
        attempt *a = &all->v[i - 1];
        if (a->number.p != NULL && (fence.p == NULL || sm_str_eq(a->fence, fence)))
            return a;
    }
    return NULL;
}

/* How an attempt ended, by its own word. */
static void take_word(attempts *all, const sm_json *entry, bool late)
{
    sm_str fence = cli_member(entry, "fence"), generation = cli_member(entry, "generation");
    attempt *a = generation.p != NULL ? NULL : find(all, fence);
    if (a == NULL && fence.p == NULL)
        return;
    if (a == NULL || (late && a->told))
        a = add(all, (attempt){.fence = fence, .generation = generation});
    if (a == NULL)
        return;
    sm_str kind = cli_member(entry, "kind");
    a->ended = cli_member(entry, "at");
    if (kind.p != NULL) {
        a->how = kind;
        a->told = true;
    }
    if (late)
        a->remark = ", late";
}

/* One note of an entry: "started", "settled", ... */
static void take_note(attempts *all, const sm_json *entry, sm_str note)
{
    sm_str at = cli_member(entry, "at");
    bool doubted = sm_str_is(note, "doubted"), resolved = sm_str_is(note, "resolved");
    if (sm_str_is(note, "started")) {
        add(all, (attempt){.number = cli_member(entry, "attempt"),
                           .fence = cli_member(entry, "fence"),
                           .actor = cli_member(entry, "actor"),
                           .started = at});
    } else if (doubted || resolved) {
        attempt *a = find(all, (sm_str){0});
        if (a == NULL)
            return;
        a->ended = at;
        if (doubted)
            a->how = SM_STR("nobody knows");
        else
            a->remark = ", resolved by a person";
    } else if (sm_str_is(note, "double_effect")) {
        attempt *a = find(all, cli_member(entry, "fence"));
        if (a != NULL) /* in time, but an earlier attempt had been applied too */
            a->remark = ", as an earlier one: done twice";
    } else {
        take_word(all, entry, sm_str_is(note, "late"));
    }
}

static void put_time(cli_table *t, sm_str text)
{
    int64_t ms;
    char when[CLI_WHEN_TEXT] = "";
    if (text.p != NULL && sm_stamp_parse(text, &ms))
        cli_when_text(ms, when);
    cli_table_cell(t, CLI_PLAIN, sm_str_from(when));
}

void cli_put_attempts(sm_buf *out, size_t indent, const sm_json *list)
{
    static const cli_column columns[] = {
        {"ATTEMPT", CLI_WHOLE, true}, {"FENCE", CLI_WHOLE, true},  {"STARTED", CLI_WHOLE, false},
        {"BY", CLI_SHRINKS, false},   {"ENDED", CLI_WHOLE, false}, {"HOW", CLI_WRAPS, false},
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
        cli_table_printf(&table, CLI_PLAIN, "%.*s%s%s%.*s", SM_FMT(a->how),
                         a->remark == NULL ? "" : a->remark,
                         a->generation.p == NULL ? "" : ", of generation ", SM_FMT(a->generation));
    }
    cli_table_put(&table, indent, all.n > 0, out);
    cli_table_fini(&table);
}
