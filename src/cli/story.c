/* How the ledger's JSON is shown. Names that are not known here are shown too. */
#include "cli/story.h"

#include "base/digest.h"
#include "base/limits.h"
#include "base/stamp.h"
#include "cli/when.h"
#include "json/canon.h"

#define COLUMNS_MAX CLI_COLUMNS_MAX
#define TITLE_MAX   24u

const sm_json *cli_story_read(sm_arena *a, sm_str json)
{
    static const sm_json_limits limits = {
        .bytes = SM_ARENA_MAX, .depth = SM_JSON_DEPTH_MAX, .values = 4 * SM_JSON_VALUES_MAX};
    const sm_json *root = NULL;
    return sm_json_read(a, json, &limits, &root, NULL) == SM_OK ? root : NULL;
}

sm_str cli_member(const sm_json *object, const char *name)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    bool text = v != NULL && (v->type == SM_JSON_STRING || v->type == SM_JSON_NUMBER);
    return text ? sm_json_text(v) : (sm_str){0};
}

sm_str cli_member_age(const sm_json *object, const char *name, int64_t now, char out[CLI_WHEN_TEXT])
{
    int64_t at;
    sm_str text = cli_member(object, name);
    if (text.p == NULL || !sm_stamp_parse(text, &at))
        return SM_STR("");
    cli_age_text(at, now, out);
    return sm_str_from(out);
}

void cli_put_value(sm_buf *out, const sm_json *v)
{
    int64_t ms;
    char when[CLI_WHEN_TEXT];
    /* A date alone is rather somebody's text than one of our times. */
    if (v->type == SM_JSON_STRING && v->len > 10 && sm_stamp_parse(sm_json_text(v), &ms)) {
        cli_when_text(ms, when);
        sm_buf_text(out, when);
    } else if (v->type == SM_JSON_STRING || v->type == SM_JSON_NUMBER) {
        sm_buf_str(out, sm_json_text(v));
    } else {
        sm_json_canon(v, out, (sm_str){0}, NULL);
    }
}

/* Hashes are for machines: --json has them. */
static bool is_hash(const sm_json *v)
{
    sm_hash hash;
    return v->type == SM_JSON_STRING && sm_hash_parse(sm_json_text(v), &hash);
}

static void put_cell(cli_table *t, cli_style style, const sm_json *v)
{
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    if (v != NULL && v->type != SM_JSON_NULL)
        cli_put_value(&text, v);
    cli_table_cell(t, style, text.len == 0 ? SM_STR("") : sm_buf_view(&text));
    if (text.err != SM_OK)
        t->text.err = text.err;
    sm_buf_fini(&text);
}

typedef struct names {
    sm_str name[COLUMNS_MAX];
    char title[COLUMNS_MAX][TITLE_MAX];
    size_t n;
} names;

static void add_name(names *all, sm_str name)
{
    for (size_t i = 0; i < all->n; i++) {
        if (sm_str_eq(all->name[i], name))
            return;
    }
    if (all->n == COLUMNS_MAX)
        return;
    char *title = all->title[all->n];
    size_t i = 0;
    for (; i < name.n && i + 1 < TITLE_MAX; i++) {
        char c = name.p[i];
        title[i] = c == '_' ? ' ' : c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
    }
    title[i] = '\0';
    all->name[all->n++] = name;
}

void cli_put_objects(sm_buf *out, size_t indent, const sm_json *list)
{
    names all = {.n = 0};
    const sm_json *item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item)) {
        const sm_json *name = item + 1;
        for (uint32_t m = 0; item->type == SM_JSON_OBJECT && m < item->len; m++) {
            if (!is_hash(name + 1))
                add_name(&all, sm_json_text(name));
            name = sm_json_next(name + 1);
        }
    }
    cli_column columns[COLUMNS_MAX];
    for (size_t c = 0; c < all.n; c++)
        columns[c] = (cli_column){.title = all.title[c], .fit = CLI_SHRINKS};
    if (all.n == 0)
        return;
    cli_table table;
    cli_table_init(&table, columns, all.n);
    item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item)) {
        for (size_t c = 0; c < all.n; c++)
            put_cell(&table, CLI_PLAIN, sm_json_find(item, all.name[c]));
    }
    cli_table_put(&table, indent, true, out);
    cli_table_fini(&table);
}

/* ---- events ----------------------------------------------------------------------------------*/

void cli_event_columns(cli_table *t, bool with_effect)
{
    static const cli_column columns[] = {
        {"SEQ", CLI_WHOLE, true},   {"TIME", CLI_WHOLE, false},    {"EFFECT", CLI_WHOLE, false},
        {"WHAT", CLI_WHOLE, false}, {"ACTOR", CLI_SHRINKS, false}, {"DETAILS", CLI_WRAPS, false},
    };
    static const cli_column of_one[] = {
        {"SEQ", CLI_WHOLE, true},      {"TIME", CLI_WHOLE, false},    {"WHAT", CLI_WHOLE, false},
        {"ACTOR", CLI_SHRINKS, false}, {"DETAILS", CLI_WRAPS, false},
    };
    if (with_effect)
        cli_table_init(t, columns, sizeof columns / sizeof columns[0]);
    else
        cli_table_init(t, of_one, sizeof of_one / sizeof of_one[0]);
}

static cli_style event_style(sm_str what)
{
    static const char *const alarming[] = {"doubted", "denied", "double_effect", "late"};
    for (size_t i = 0; i < sizeof alarming / sizeof alarming[0]; i++) {
        size_t n = strlen(alarming[i]);
        for (size_t at = 0; at + n <= what.n; at++) {
            if (memcmp(what.p + at, alarming[i], n) == 0)
                return CLI_RED;
        }
    }
    return CLI_PLAIN;
}

/* The members of an event's body as "name value, name value". */
static void put_details(sm_buf *out, const sm_json *body)
{
    if (body == NULL || body->type != SM_JSON_OBJECT)
        return;
    const sm_json *name = body + 1;
    for (uint32_t i = 0; i < body->len; i++, name = sm_json_next(name + 1)) {
        if (is_hash(name + 1))
            continue;
        if (out->len > 0)
            sm_buf_text(out, ", ");
        sm_buf_str(out, sm_json_text(name));
        sm_buf_byte(out, ' ');
        cli_put_value(out, name + 1);
    }
}

void cli_event_row(cli_table *t, const sm_json *event, bool with_effect)
{
    sm_str what = cli_member(event, "what");
    sm_buf details;
    sm_buf_init(&details, SM_ARENA_MAX);
    put_details(&details, sm_json_find(event, SM_STR("body")));
    put_cell(t, CLI_DIM, sm_json_find(event, SM_STR("seq")));
    put_cell(t, CLI_PLAIN, sm_json_find(event, SM_STR("at")));
    if (with_effect)
        cli_table_cell(t, CLI_PLAIN, cli_member(event, "effect"));
    cli_table_cell(t, event_style(what), what);
    cli_table_cell(t, CLI_PLAIN, cli_member(event, "actor"));
    cli_table_cell(t, CLI_DIM, details.len == 0 ? SM_STR("") : sm_buf_view(&details));
    if (details.err != SM_OK)
        t->text.err = details.err;
    sm_buf_fini(&details);
}
