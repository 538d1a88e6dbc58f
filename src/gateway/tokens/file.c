/*
 * The file of tokens, and reading it.
 *
 *     {"version":1,"session_key":"...","tokens":[
 *     {"id":"k3v9x2ma","name":"ci","role":"agent","scope":"acme/ci","sha256":"...",
 *      "made_at_ms":1763280000000,"ends_at_ms":1765872000000}]}
 *
 * Every entry is checked like something from outside, although we wrote it: what is in this file
 * decides who may do what.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/trust.h"
#include "base/utf8.h"
#include "core/call.h"
#include "core/field.h"
#include "gateway/tokens.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const sm_json_limits file_limits = {
    .bytes = GW_TOKENS_BYTES_MAX, .depth = 8, .values = 25 * GW_TOKENS_MAX};

static sm_err out_of_memory(sm_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
}

sm_err gw_tokens_failed(const char *path, const char *doing, sm_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_IO, "the tokens in %s cannot be %s: %s", path, doing,
                        strerror(errno));
}

/* ---- what is in it ---------------------------------------------------------------------------*/

/* One token as it stands in the file. */
typedef struct entry {
    sm_str id, name, scope, sha256;
    int role;
    int64_t made_at_ms, ends_at_ms;
} entry;

#define TIME_MAX INT64_C(253402300799999) /* the end of the year 9999 */

/* In the order of the bits of gw_role. */
static const char *const role_names[] = {"agent", "approver", "operator", "admin", NULL};

static const sm_field entry_fields[] = {
    {"id", SM_KIND_STRING, SM_FIELD(entry, id), SM_FIELD_REQUIRED},
    {"name", SM_KIND_STRING, SM_FIELD(entry, name), SM_FIELD_REQUIRED},
    {"role", SM_KIND_ENUM, SM_FIELD(entry, role), SM_FIELD_REQUIRED, .names = role_names},
    {"scope", SM_KIND_STRING, SM_FIELD(entry, scope)},
    {"sha256", SM_KIND_STRING, SM_FIELD(entry, sha256), SM_FIELD_REQUIRED},
    {"made_at_ms", SM_KIND_COUNT, SM_FIELD(entry, made_at_ms), .min = 0, .max = TIME_MAX},
    {"ends_at_ms", SM_KIND_COUNT, SM_FIELD(entry, ends_at_ms), .min = 0, .max = TIME_MAX},
};
static const sm_group entry_group = {entry_fields, COUNT(entry_fields), .size = sizeof(entry)};

static bool right_id(sm_str id)
{
    bool right = id.n == GW_ID_TEXT;
    for (size_t i = 0; right && i < id.n; i++)
        right = (id.p[i] >= 'a' && id.p[i] <= 'z') || (id.p[i] >= '0' && id.p[i] <= '9');
    return right;
}

/* A name goes into the audit trail and onto terminals: one line of text. */
static bool right_name(sm_str name)
{
    bool right = name.n > 0 && name.n <= GW_NAME_MAX && sm_utf8_valid(name);
    for (size_t i = 0; right && i < name.n; i++)
        right = (unsigned char)name.p[i] >= 0x20 && name.p[i] != 0x7F;
    return right;
}

sm_err gw_token_right(sm_str name, sm_str scope, sm_fault *fault)
{
    const sm_parsed_call call = {.scope = scope, .tool = SM_STR("any")};
    if (!right_name(name))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "a name has 1 to %u bytes of visible text", GW_NAME_MAX);
    return scope.n == 0 ? SM_OK : sm_call_check(&call, fault);
}

static void copy(char *to, sm_str from)
{
    if (from.n > 0)
        memcpy(to, from.p, from.n);
    to[from.n] = '\0';
}

static void read_entry(sm_loader *l, const sm_json *value, gw_token *out)
{
    entry e = {0};
    sm_fault fault;
    uint32_t errors = l->report->errors;
    if (value->type != SM_JSON_OBJECT) {
        sm_complain(l, value, "a token is an object, found %s", sm_found(l, value));
        return;
    }
    sm_group_read(l, &entry_group, "a token", value, &e, NULL);
    if (l->report->errors != errors)
        return;
    if (!right_id(e.id))
        sm_complain(l, value, "an id has %u lowercase letters and digits", GW_ID_TEXT);
    else if (gw_token_right(e.name, e.scope, &fault) != SM_OK)
        sm_complain(l, value, "%s", fault.text);
    else if (!sm_hash_parse(e.sha256, &out->hash))
        sm_complain(l, value, "sha256: expected %u characters of base64url", SM_HASH_TEXT);
    else {
        copy(out->id, e.id);
        copy(out->name, e.name);
        copy(out->scope, e.scope);
        out->role = (gw_role)(1 << e.role);
        out->made_at = e.made_at_ms;
        out->ends_at = e.ends_at_ms;
    }
}

typedef struct whole {
    int64_t version;
    sm_str session_key;
    const sm_json *tokens;
} whole;

static void keep_list(sm_loader *l, const sm_json *value, void *out)
{
    if (value->type == SM_JSON_ARRAY && value->len <= GW_TOKENS_MAX)
        *(const sm_json **)out = value;
    else
        sm_complain(l, value, "tokens: expected a list of at most %u, found %s", GW_TOKENS_MAX,
                    sm_found(l, value));
}

static const sm_field whole_fields[] = {
    {"version", SM_KIND_COUNT, SM_FIELD(whole, version), SM_FIELD_REQUIRED, .min = 1, .max = 1},
    {"session_key", SM_KIND_STRING, SM_FIELD(whole, session_key)},
    {"tokens", SM_KIND_CUSTOM, SM_FIELD(whole, tokens), SM_FIELD_REQUIRED, .read = keep_list},
};
static const sm_group whole_group = {whole_fields, COUNT(whole_fields), .size = sizeof(whole)};

static int by_id(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two tokens of one id: one of them could not be revoked. */
static const char *repeated_id(sm_loader *l, const gw_token_list *list)
{
    const char **ids = sm_loader_alloc(l, list->n, sizeof *ids);
    for (size_t i = 0; ids != NULL && i < list->n; i++)
        ids[i] = list->v[i].id;
    if (ids != NULL && list->n > 1)
        qsort(ids, list->n, sizeof *ids, by_id);
    for (size_t i = 1; ids != NULL && i < list->n; i++) {
        if (strcmp(ids[i - 1], ids[i]) == 0)
            return ids[i];
    }
    return NULL;
}

static sm_err read_list(sm_loader *l, const sm_json *root, gw_token_list *out)
{
    whole w = {0};
    if (root->type != SM_JSON_OBJECT) {
        sm_complain(l, root, "expected an object with version and tokens, found %s",
                    sm_found(l, root));
        return SEMEL_E_INVALID;
    }
    sm_group_read(l, &whole_group, "the file", root, &w, NULL);
    if (w.session_key.p != NULL &&
        (!sm_hash_parse(w.session_key, &out->session_key) || !gw_session_key_given(out)))
        sm_complain(l, root, "session_key: expected %u characters of base64url", SM_HASH_TEXT);
    if (w.tokens == NULL)
        return SEMEL_E_INVALID;
    out->n = w.tokens->len;
    out->v = calloc(out->n == 0 ? 1 : out->n, sizeof *out->v);
    if (out->v == NULL)
        return SEMEL_E_NOMEM;
    const sm_json *item = w.tokens + 1;
    for (size_t i = 0; i < out->n; i++, item = sm_json_next(item))
        read_entry(l, item, &out->v[i]);
    const char *twice = l->report->errors == 0 ? repeated_id(l, out) : NULL;
    if (twice != NULL)
        sm_complain(l, w.tokens, "the id %s is there twice", twice);
    return l->failed ? SEMEL_E_NOMEM : l->report->errors > 0 ? SEMEL_E_INVALID : SM_OK;
}

static sm_err parse(const char *path, sm_str text, gw_token_list *out, sm_fault *fault)
{
    sm_arena arena;
    sm_report report = {0};
    sm_loader l = {.arena = &arena, .report = &report};
    const sm_json *root;
    sm_fault inner;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_err e = sm_report_init(&report, text);
    if (e == SM_OK && (e = sm_json_read(&arena, text, &file_limits, &root, &inner)) != SM_OK)
        sm_report_add(&report, SM_ERROR, inner.at, "%s", inner.text);
    if (e == SM_OK)
        e = read_list(&l, root, out);
    if (e != SM_OK && report.count > 0)
        sm_fault_set(fault, e, "%s:%u:%u: %s", path, report.items[0].line, report.items[0].column,
                     report.items[0].text.p);
    else if (e != SM_OK)
        out_of_memory(fault);
    sm_report_fini(&report);
    sm_arena_fini(&arena);
    return e;
}

/* ---- reading ---------------------------------------------------------------------------------*/

/* Whoever can write to it could make himself an administrator. */
static sm_err check_file(const char *path, int fd, sm_fault *fault)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return gw_tokens_failed(path, "read", fault);
    sm_err e = sm_trust(path, &st, false, SEMEL_E_INVALID, fault);
    if (e != SM_OK)
        return e;
    if (st.st_size > (off_t)GW_TOKENS_BYTES_MAX)
        return sm_fault_set(fault, SEMEL_E_LIMIT, "%s is larger than the limit of %zu bytes", path,
                            GW_TOKENS_BYTES_MAX);
    return SM_OK;
}

static sm_err read_all(const char *path, int fd, sm_buf *text, sm_fault *fault)
{
    for (;;) {
        if (!sm_buf_reserve(text, 65536))
            return sm_fault_set(fault, text->err, "%s: %s", path, semel_err_text(text->err));
        ssize_t n = read(fd, text->p + text->len, 65536);
        if (n == 0)
            return SM_OK;
        if (n < 0 && errno != EINTR)
            return gw_tokens_failed(path, "read", fault);
        text->len += n < 0 ? 0 : (size_t)n;
    }
}

sm_err gw_tokens_read(const char *path, gw_token_list *out, sm_fault *fault)
{
    *out = (gw_token_list){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return sm_fault_set(fault, SEMEL_E_NOT_FOUND, "there is no file of tokens at %s", path);
    if (fd < 0)
        return gw_tokens_failed(path, "read", fault);
    sm_buf text;
    sm_buf_init(&text, GW_TOKENS_BYTES_MAX + 2 * 65536);
    sm_err e = check_file(path, fd, fault);
    if (e == SM_OK)
        e = read_all(path, fd, &text, fault);
    if (e == SM_OK)
        e = parse(path, sm_buf_view(&text), out, fault);
    if (e != SM_OK) {
        free(out->v);
        *out = (gw_token_list){0};
    }
    sm_buf_fini(&text);
    close(fd);
    return e;
}

bool gw_session_key_given(const gw_token_list *list)
{
    static const sm_hash none;
    return memcmp(&list->session_key, &none, sizeof none) != 0;
}

sm_err gw_token_each(const char *path, gw_token_fn *each, void *context, sm_fault *fault)
{
    gw_token_list list;
    sm_err e = gw_tokens_read(path, &list, fault);
    for (size_t i = 0; i < list.n && each(context, &list.v[i]); i++) {
    }
    free(list.v);
    return e == SEMEL_E_NOT_FOUND ? SM_OK : e;
}
