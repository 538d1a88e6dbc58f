/*
 * Warnings about secrets that a contract lets into the ledger: arguments that look like one and are
 * stored, secrets written out in the file, and logins whose answer is recorded.
 */
#include "core/contract.h"
#include "core/secret.h"

typedef struct lint {
    sm_loader *l;
    const sm_declared_tool *tool;
    const sm_contract *c;
    sm_buf *told; /* which places to redact was advised, one a line */
} lint;

/* ---- secrets in the file ---------------------------------------------------------------------*/

static void lint_headers(const lint *k)
{
    const sm_headers *headers = &k->c->upstream.headers;
    const sm_json *given = sm_json_find(k->c->origin[SM_F_UPSTREAM].given, SM_STR("headers"));
    for (uint32_t i = 0; i < headers->n; i++) {
        const sm_json *value = sm_json_find(given, headers->v[i].name);
        if (value != NULL && sm_header_secret(&headers->v[i]))
            sm_advise(k->l, value,
                      "%.*s looks like a secret written out; keep it in the environment and write "
                      "\"${NAME}\"",
                      SM_FMT(headers->v[i].name));
    }
}

/* ---- secrets among the arguments -------------------------------------------------------------*/

/* Whether nothing of this place is stored. */
static bool is_redacted(const sm_contract *c, const sm_pointer *p)
{
    bool is = false;
    for (uint32_t i = 0; i < c->redact.n && !is; i++)
        is = c->redact.v[i].count <= p->count && sm_pointer_overlap(&c->redact.v[i], p);
    return is;
}

/* The outermost part of a pointer that is named like a secret. False if none is. */
static bool secret_of(const sm_pointer *p, sm_pointer *out)
{
    for (uint32_t n = 1; n <= p->count; n++) {
        if (sm_way_secret(p->tokens, n)) {
            *out = (sm_pointer){.tokens = p->tokens, .count = n};
            return true;
        }
    }
    return false;
}

static void put_pointer(sm_buf *out, const sm_pointer *p)
{
    for (uint32_t i = 0; i < p->count; i++)
        sm_pointer_put_token(out, p->tokens[i]);
}

/* Advises to redact a place, if what is stored has a secret there. Once, at the first mention. */
static void advise_redact(const lint *k, const sm_json *at, const sm_pointer *secret,
                          const sm_pointer *redact)
{
    sm_buf name, advice;
    if (is_redacted(k->c, redact))
        return;
    sm_buf_init(&name, SM_ARENA_MAX);
    sm_buf_init(&advice, SM_ARENA_MAX);
    put_pointer(&name, secret);
    sm_buf_text(&advice, "redact: [");
    put_pointer(&advice, redact);
    sm_buf_text(&advice, "]\n");
    sm_str line = sm_buf_view(&advice);
    if (name.err != SM_OK || advice.err != SM_OK) {
        k->l->failed = true;
    } else if (k->told->len == 0 || memmem(k->told->p, k->told->len, line.p, line.n) == NULL) {
        sm_buf_bytes(k->told, line.p, line.n);
        sm_advise(k->l, at,
                  "%.*s looks like a secret, and arguments are stored in the ledger; write %.*s",
                  SM_FMT(sm_buf_view(&name)), (int)line.n - 1, line.p);
    }
    sm_buf_fini(&name);
    sm_buf_fini(&advice);
}

static void lint_place(const lint *k, const sm_json *at, const sm_pointer *p)
{
    sm_pointer secret;
    if (secret_of(p, &secret))
        advise_redact(k, at, &secret, &secret);
}

static void lint_places(const lint *k, const sm_json *at, const sm_pointer *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        lint_place(k, at, &v[i]);
}

/* Where the walk through a schema is. */
typedef struct walk {
    sm_str way[SM_JSON_DEPTH_MAX];
    uint32_t list; /* how far it is to the outermost list; 0: in none */
} walk;

/* The properties of a schema, and theirs. No pointer names all items of a list, so their secrets
 * are redacted with it. */
static void lint_properties(const lint *k, const sm_json *schema, walk *w, uint32_t depth)
{
    const sm_json *all = sm_json_find(schema, SM_STR("properties"));
    const sm_json *items = sm_json_find(schema, SM_STR("items"));
    if (depth == SM_JSON_DEPTH_MAX)
        return;
    if (items != NULL && depth > 0) {
        bool outermost = w->list == 0;
        w->list = outermost ? depth : w->list;
        w->way[depth] = SM_STR("*");
        lint_properties(k, items, w, depth + 1);
        w->list = outermost ? 0 : w->list;
    }
    if (all == NULL || all->type != SM_JSON_OBJECT)
        return;
    const sm_json *name = all + 1;
    for (uint32_t i = 0; i < all->len; i++, name = sm_json_next(name + 1)) {
        w->way[depth] = sm_json_text(name);
        const sm_pointer p = {.tokens = w->way, .count = depth + 1};
        const sm_pointer list = {.tokens = w->way, .count = w->list};
        if (sm_way_secret(w->way, depth + 1))
            advise_redact(k, name, &p, w->list > 0 ? &list : &p);
        else
            lint_properties(k, name + 1, w, depth + 1);
    }
}

/* The fields of conditions, as they are given. */
static void lint_fields(const lint *k, const sm_json *when)
{
    const sm_json *item = when + 1;
    for (uint32_t i = 0; when->type == SM_JSON_ARRAY && i < when->len;
         i++, item = sm_json_next(item)) {
        const sm_json *field = sm_json_find(item, SM_STR("field"));
        sm_pointer p;
        if (field != NULL && field->type == SM_JSON_STRING &&
            sm_pointer_parse(k->l->arena, sm_json_text(field), &p, NULL) == SM_OK)
            lint_place(k, field, &p);
    }
}

static const sm_json *place(const lint *k, sm_contract_field id, const char *inner)
{
    return sm_contract_place(k->tool, k->c, id, inner);
}

/* The conditions of the variant that this contract is, or NULL. */
static const sm_json *variant_when(const lint *k)
{
    return k->c->variant == 0 ? NULL : k->tool->contract.variants[k->c->variant - 1].given;
}

static const sm_json *approval_when(const lint *k)
{
    return sm_json_find(k->c->origin[SM_F_APPROVAL].given, SM_STR("when"));
}

/* Arguments are stored, and so are secrets among them. Those of a request through the reverse proxy
 * are not, whatever the contract says. */
static void lint_arguments(const lint *k)
{
    const sm_contract *c = k->c;
    walk w = {.list = 0};
    const sm_json *const conditions[] = {approval_when(k), variant_when(k)};
    lint_properties(k, c->origin[SM_F_INPUT].given, &w, 0);
    lint_places(k, place(k, SM_F_FILL, NULL), c->fill.pointers, c->fill.count);
    lint_places(k, place(k, SM_F_KEY, "fields"), c->key.fields.v, c->key.fields.n);
    lint_places(k, place(k, SM_F_KEY, "ignore"), c->key.ignore.v, c->key.ignore.n);
    lint_places(k, place(k, SM_F_RESOURCE, NULL), c->resource.fields.v, c->resource.fields.n);
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++)
        if (conditions[i] != NULL)
            lint_fields(k, conditions[i]);
}

/* What must match is compared with what is stored. */
static void lint_match(const lint *k)
{
    const sm_pointers *match = &k->c->key.match;
    sm_pointer secret;
    for (uint32_t i = 0; i < match->n; i++) {
        const sm_pointer *p = &match->v[i];
        if (secret_of(p, &secret) && !is_redacted(k->c, p))
            sm_advise(k->l, place(k, SM_F_KEY, "match"),
                      sm_tool_proxy(k->tool)
                          ? "key: %.*s looks like a secret, and secrets of a request are not "
                            "stored, so key.match cannot compare them; move it to key.fields"
                          : "key: %.*s looks like a secret, and key.match compares it with the "
                            "stored value; move it to key.fields, and redact it",
                      SM_FMT(p->text));
    }
}

/* ---- logins ----------------------------------------------------------------------------------*/

/* The words of a path, a pattern of one, or a tool's name. */
typedef struct reading {
    sm_str rest;
    char word[16], before[16]; /* in lowercase; a longer one is cut */
} reading;

static bool next_word(reading *r)
{
    size_t n = 0, at = 0, end;
    memcpy(r->before, r->word, sizeof r->word);
    while (at < r->rest.n && !((r->rest.p[at] | 0x20) >= 'a' && (r->rest.p[at] | 0x20) <= 'z'))
        at++;
    for (end = at; end < r->rest.n; end++) {
        char c = (char)(r->rest.p[end] | 0x20);
        if (c < 'a' || c > 'z')
            break;
        if (n < sizeof r->word - 1)
            r->word[n++] = c;
    }
    r->word[n] = '\0';
    r->rest = (sm_str){r->rest.p + end, r->rest.n - end};
    return n > 0;
}

static bool is_one_of(const char *word, const char *const *list)
{
    while (*list != NULL && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

/* A session is a login's if it is nobody else's: checkouts and agents have sessions, too. */
static bool is_session(const reading *r)
{
    static const char *const sessions[] = {"session", "sessions", NULL};
    static const char *const owners[] = {"",        "api",      "user",  "users",
                                         "account", "accounts", "admin", NULL};
    return is_one_of(r->word, sessions) && is_one_of(r->before, owners);
}

/* Whether a text looks like that of a login. Words that others have too do not count beside one
 * that ends a login, nor in the name of a tool. */
static bool is_login(sm_str text, bool name)
{
    static const char *const sure[] = {"login", "logon", "signin", "authenticate", NULL};
    static const char *const likely[] = {"auth", "oauth", "token", NULL};
    static const char *const ending[] = {"logout", "signout", "revoke", NULL};
    reading r = {.rest = text};
    bool perhaps = false, over = false;
    while (next_word(&r)) {
        bool two = strcmp(r.before, "sign") == 0 || strcmp(r.before, "log") == 0;
        if (is_one_of(r.word, sure) || (two && strcmp(r.word, "in") == 0))
            return true;
        perhaps = perhaps || is_one_of(r.word, likely) || is_session(&r);
        over = over || is_one_of(r.word, ending) || (two && strcmp(r.word, "out") == 0);
    }
    return perhaps && !over && !name;
}

/* Whether a text below a value looks like a login. */
static bool has_login(const sm_json *value)
{
    bool has = false;
    for (uint32_t i = 0; value != NULL && i < value->span && !has; i++)
        has = value[i].type == SM_JSON_STRING && is_login(sm_json_text(&value[i]), false);
    return has;
}

/* A condition on the path that looks like a login, or NULL. */
static const sm_json *login_of(const sm_json *when)
{
    static const char *const operators[] = {"equals", "in", "matches"};
    if (when == NULL || when->type != SM_JSON_ARRAY)
        return NULL;
    const sm_json *item = when + 1;
    for (uint32_t i = 0; i < when->len; i++, item = sm_json_next(item)) {
        const sm_json *field = sm_json_find(item, SM_STR("field"));
        if (field == NULL || field->type != SM_JSON_STRING ||
            !sm_str_is(sm_json_text(field), "/path"))
            continue;
        for (size_t j = 0; j < sizeof operators / sizeof *operators; j++) {
            const sm_json *value = sm_json_find(item, sm_str_from(operators[j]));
            if (has_login(value))
                return value;
        }
    }
    return NULL;
}

/* The path of a URL or template. */
static sm_str path_of(sm_str url)
{
    const char *host = memmem(url.p, url.n, "://", 3);
    size_t at = host == NULL ? url.n : (size_t)(host - url.p) + 3, end;
    while (at < url.n && url.p[at] != '/')
        at++;
    for (end = at; end < url.n && url.p[end] != '?';)
        end++;
    return (sm_str){url.p + at, end - at};
}

/* The answer of a login holds a token. It must not be stored, and must be new each time. */
static void lint_login(const lint *k)
{
    const sm_contract *c = k->c;
    const sm_json *at = NULL;
    if (sm_contract_strategy(c) == SM_KEY_NONE)
        return;
    if (sm_tool_proxy(k->tool)) {
        at = login_of(variant_when(k));
        at = at != NULL ? at : login_of(approval_when(k));
    } else if (c->origin[SM_F_UPSTREAM].given != NULL) {
        at = is_login(path_of(c->upstream.url), false) ? place(k, SM_F_UPSTREAM, "url")
             : is_login(k->tool->name, true)           ? k->tool->given
                                                       : NULL;
    }
    if (at != NULL)
        sm_advise(k->l, at,
                  "this looks like a login: its answer, with a token in it, is stored and "
                  "replayed; if it is one, give it class: read");
}

void sm_contract_lint_secrets(sm_loader *l, const sm_declared_tool *tool, const sm_contract *c)
{
    sm_buf told;
    lint k = {l, tool, c, &told};
    lint_headers(&k);
    if (c->class == SM_CLASS_READ)
        return; /* it is not recorded */
    sm_buf_init(&told, SM_ARENA_MAX);
    if (!sm_tool_proxy(tool))
        lint_arguments(&k);
    lint_match(&k);
    lint_login(&k);
    sm_buf_fini(&told);
}
