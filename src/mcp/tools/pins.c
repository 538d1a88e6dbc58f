/*
 * What a server said of its tools when they were first seen.
 *
 *     {"version":1,"tools":{
 *     "delete_all":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,
 *      "openWorldHint":true,"inputDefaults":{"properties":{"force":{"default":false}}},
 *      "inputSchemaSha256":"...","firstSeen":"2026-11-16T09:00:00.000Z"}}}
 *
 * A server that has won somebody's trust must not be able to spend it later: a tool that was a
 * write when it was first seen does not become a read because the server now says so. People decide
 * that, in the contract or by taking the tool out of this file.
 *
 * The defaults of arguments that were seen first are those by which calls are compared, for ever: a
 * server that computes one when it starts, or gets one with an upgrade, must not give a retry
 * another key. So a default counts only once it is in the file. Where nothing can be kept, no
 * default counts. If the file cannot be used for now, calls that leave a default out are refused:
 * they would have another key than before, or after.
 *
 * The file is replaced whole: written beside it, synced, renamed. Of several processes that do so
 * at once each adds to what the others have written, for they take turns by a lock on PATH.lock.
 * Nothing is written while another one has the lock. Where there are no locks it is done without:
 * then one of two additions may be lost, and is made again next time. Tools that the server no
 * longer lists stay: they may come back.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/stamp.h"
#include "base/trust.h"
#include "base/visible.h"
#include "json/write.h"
#include "mcp/tools.h"

#define PINS_BYTES_MAX     ((size_t)32 << 20)
#define DEFAULTS_BYTES_MAX ((size_t)64 << 10) /* of one tool */
#define DEFAULTS_ALL_MAX   ((size_t)2 << 20)  /* of all, which is more than their values */
#define ENTRY_DEPTH        4u                 /* of an entry's members in the file */
#define LOCK_TRIES         100                /* 10 ms apart */

static const sm_json_limits file_limits = {.bytes = PINS_BYTES_MAX,
                                           .depth = SM_JSON_DEPTH_MAX,
                                           .values = 32 * MCP_TOOLS_MAX + DEFAULTS_ALL_MAX};
static const sm_json_limits defaults_limits = {.bytes = DEFAULTS_BYTES_MAX,
                                               .depth = SM_JSON_DEPTH_MAX - ENTRY_DEPTH,
                                               .values = DEFAULTS_BYTES_MAX};

/* One tool's entry. */
typedef struct pin {
    sm_str name;
    mcp_hints hints;
    sm_str digest;   /* of its schema, hexadecimal; absent: it is not known */
    sm_str defaults; /* by sm_defaults_put; absent: they are not known */
    bool fresh;      /* these are not in the file yet */
    sm_str seen;
} pin;

#define NO_DEFAULTS "{}"

typedef struct check {
    const char *path;
    mcp_tools *tools;
    const mcp_tools *before;
    mcp_pin_fn *tell;
    void *context;
    sm_arena arena;
    pin *pins; /* those of the file, by name; then those that are new */
    size_t known, n;
    size_t default_bytes; /* of all pins */
    bool changed;
    bool busy;      /* another process has the lock */
    bool forbidden; /* the file must not be read */
    char now[SM_STAMP_TEXT];
} check;

static void tell(const check *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void tell(const check *k, const char *format, ...)
{
    char text[PATH_MAX + 1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    k->tell(k->context, text);
}

static int by_name(const void *a, const void *b)
{
    sm_str x = ((const pin *)a)->name, y = ((const pin *)b)->name;
    int order = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
    return order != 0 ? order : (x.n > y.n) - (x.n < y.n);
}

#define REFUSED "calls that leave out an argument with a default are refused"
#define UNEQUAL "an argument that is left out does not equal its default"

/* ---- the file's contents ---------------------------------------------------------------------*/

static bool flag(const sm_json *entry, const char *name, bool otherwise)
{
    const sm_json *v = sm_json_find(entry, sm_str_from(name));
    if (v == NULL || (v->type != SM_JSON_TRUE && v->type != SM_JSON_FALSE))
        return otherwise;
    return v->type == SM_JSON_TRUE;
}

static sm_str string(const sm_json *entry, const char *name)
{
    const sm_json *v = sm_json_find(entry, sm_str_from(name));
    return v != NULL && v->type == SM_JSON_STRING ? sm_json_text(v) : (sm_str){0};
}

/* Defaults as text, in the arena; absent when out of memory. */
static sm_str defaults_text(check *k, const sm_defaults *d)
{
    sm_buf text;
    sm_buf_init(&text, PINS_BYTES_MAX);
    sm_defaults_put(&text, d);
    sm_str out = text.err == SM_OK ? sm_arena_text(&k->arena, sm_buf_view(&text)) : (sm_str){0};
    sm_buf_fini(&text);
    return out;
}

/* What somebody has taken out of an entry is taken for the stricter. */
static pin read_pin(check *k, const sm_json *name)
{
    const sm_json *entry = name + 1, *said = sm_json_find(entry, SM_STR("inputDefaults"));
    return (pin){
        .defaults = said == NULL ? (sm_str){0} : defaults_text(k, sm_defaults_of(&k->arena, said)),
        .name = sm_json_text(name),
        .hints = {.read_only = flag(entry, "readOnlyHint", false),
                  .destructive = flag(entry, "destructiveHint", true),
                  .idempotent = flag(entry, "idempotentHint", false),
                  .open_world = flag(entry, "openWorldHint", true)},
        .digest = string(entry, "inputSchemaSha256"),
        .seen = string(entry, "firstSeen"),
    };
}

/* `list` NULL: there is no file yet. */
static bool make_pins(check *k, const sm_json *list)
{
    size_t known = list == NULL ? 0 : list->len;
    k->pins = sm_arena_zalloc(&k->arena, known + mcp_tools_count(k->tools) + 1, sizeof *k->pins);
    if (k->pins == NULL) {
        tell(k, "the pinned tools in %s need more memory than there is; none is checked", k->path);
        return false;
    }
    const sm_json *name = known == 0 ? NULL : list + 1;
    for (; k->n < known; k->n++, name = sm_json_next(name + 1)) {
        k->pins[k->n] = read_pin(k, name);
        k->default_bytes += k->pins[k->n].defaults.n;
    }
    k->known = known;
    if (known > 1)
        qsort(k->pins, known, sizeof *k->pins, by_name);
    return true;
}

static bool parse(check *k, sm_str text)
{
    const sm_json *root;
    sm_fault fault = {0};
    sm_err e = sm_json_read(&k->arena, text, &file_limits, &root, &fault);
    const sm_json *version = e == SM_OK ? sm_json_find(root, SM_STR("version")) : NULL;
    const sm_json *list = e == SM_OK ? sm_json_find(root, SM_STR("tools")) : NULL;
    if (e != SM_OK)
        tell(k,
             "the pinned tools in %s cannot be read (line %u: %s): no change of a tool is noticed, "
             "and " REFUSED ". Mend the file, or remove it to pin the tools as they are now.",
             k->path, fault.line, fault.text);
    else if (version == NULL || version->type != SM_JSON_NUMBER ||
             !sm_str_is(sm_json_text(version), "1") || list == NULL || list->type != SM_JSON_OBJECT)
        tell(k,
             "%s is not a file of pinned tools that this version knows: no change of a tool is "
             "noticed, and " REFUSED ". Remove it to pin the tools as they are now.",
             k->path);
    else
        return make_pins(k, list);
    return false;
}

/* Whether a file is not there, or must not be used: not for a reason that passes. */
static bool is_forbidden(int error)
{
    return error == EACCES || error == EPERM || error == EROFS || error == ENOENT ||
           error == ENOTDIR || error == EISDIR || error == ELOOP || error == ENAMETOOLONG;
}

static bool read_pins(check *k)
{
    int error = access(k->path, R_OK) == 0 ? 0 : errno;
    if (error == ENOENT || error == ENOTDIR)
        return make_pins(k, NULL);
    k->forbidden = is_forbidden(error);
    if (k->forbidden) {
        tell(k,
             "the pinned tools in %s cannot be read: %s. No change of a tool is noticed, and %s.",
             k->path, strerror(error), UNEQUAL);
        return false;
    }
    sm_buf text;
    sm_fault fault = {0};
    bool done = false;
    if (sm_file_read(k->path, PINS_BYTES_MAX, &text, &fault) != SM_OK)
        tell(k,
             "the pinned tools cannot be read: %s. No change of a tool is noticed, and " REFUSED
             ".",
             fault.text);
    else
        done = parse(k, sm_buf_view(&text)); /* which copies what it keeps */
    sm_buf_fini(&text);
    return done;
}

/* ---- comparing -------------------------------------------------------------------------------*/

/* What a name looks like in a sentence. */
#define SHOWN_MAX 128u
static const char *shown(sm_str name, char out[SHOWN_MAX])
{
    sm_buf b;
    sm_buf_init(&b, 8 * SM_TOOL_MAX);
    sm_visible_put(&b, name);
    snprintf(out, SHOWN_MAX, "%.*s%s", b.len < SHOWN_MAX - 4 ? (int)b.len : (int)SHOWN_MAX - 4,
             b.len == 0 ? "" : b.p, b.len < SHOWN_MAX - 4 ? "" : "...");
    sm_buf_fini(&b);
    return out;
}

/* The day on which a tool was first seen, if that is what is there. */
static const char *day(sm_str seen, char out[16])
{
    int64_t ms;
    bool right = seen.n >= 10 && sm_stamp_parse(seen, &ms);
    snprintf(out, 16, "%.*s", right ? 10 : 7, right ? seen.p : "earlier");
    return out;
}

#define DECIDE "To decide yourself, list it in the contract."

static void compare_hints(const check *k, const pin *p, mcp_hints *now)
{
    const mcp_hints then = p->hints;
    char name[SHOWN_MAX], date[16];
    shown(p->name, name);
    day(p->seen, date);
    if (now->read_only && !then.read_only)
        tell(k,
             "the server now calls \"%s\" read-only, which it did not when it was first seen (%s); "
             "it is still treated as a write. " DECIDE,
             name, date);
    if (!now->destructive && then.destructive)
        tell(k,
             "the server no longer calls \"%s\" destructive, which it did when it was first seen "
             "(%s); it still counts as that. " DECIDE,
             name, date);
    if (now->idempotent && !then.idempotent)
        tell(k,
             "the server now says that repeating \"%s\" is harmless, which it did not when it was "
             "first seen (%s); that is not believed. " DECIDE,
             name, date);
    if (!now->open_world && then.open_world)
        tell(k,
             "the server no longer says that \"%s\" reaches the outside world, which it did when "
             "it was first seen (%s); it still counts as doing so. " DECIDE,
             name, date);
    now->read_only &= then.read_only;
    now->destructive |= then.destructive;
    now->idempotent &= then.idempotent;
    now->open_world |= then.open_world;
}

/* The defaults of a tool, as they are pinned if they are new. */
static sm_str new_defaults(check *k, const mcp_tool *tool)
{
    const sm_json *root;
    char name[SHOWN_MAX];
    sm_str text = defaults_text(k, tool->latest);
    if (text.p == NULL || (k->default_bytes + text.n <= DEFAULTS_ALL_MAX &&
                           sm_json_read(&k->arena, text, &defaults_limits, &root, NULL) == SM_OK))
        return text;
    tell(k,
         "the defaults of \"%s\" are too large to be pinned: " UNEQUAL
         ". Use `fill` in the contract.",
         shown(tool->name, name));
    return SM_STR(NO_DEFAULTS);
}

static bool compare_defaults(check *k, const mcp_tool *tool, pin *p, bool *differ)
{
    *differ = false;
    if (p->defaults.p == NULL) {
        p->defaults = new_defaults(k, tool);
        p->fresh = k->changed = true;
        k->default_bytes += p->defaults.n;
    } else if (tool->latest != NULL || !sm_str_is(p->defaults, NO_DEFAULTS)) {
        *differ = !sm_str_eq(p->defaults, defaults_text(k, tool->latest));
    }
    return p->defaults.p != NULL;
}

static bool compare_schema(check *k, const mcp_tool *tool, pin *p)
{
    char hex[SM_HASH_HEX + 1], name[SHOWN_MAX], date[16];
    bool differ;
    if (!compare_defaults(k, tool, p, &differ))
        return false;
    sm_hash_hex(&tool->schema_digest, hex);
    if (sm_str_is(p->digest, hex))
        return true;
    if (p->digest.n > 0)
        tell(k,
             "the server has changed the arguments of \"%s\" (its input schema) since it was first "
             "seen (%s): see whether its key in the contract still names what makes two calls the "
             "same.%s",
             shown(tool->name, name), day(p->seen, date),
             differ ? " Its defaults have changed too: an argument that is left out still equals "
                      "the first default, and no new one."
                    : "");
    p->digest = sm_arena_text(&k->arena, sm_str_from(hex));
    k->changed = true;
    return p->digest.p != NULL;
}

/* The tool in the list before, if nothing was said of it since. */
static const mcp_tool *unchanged(const check *k, const mcp_tool *tool)
{
    const mcp_tool *was = k->before == NULL ? NULL : mcp_tools_find(k->before, tool->name);
    bool same = was != NULL && !was->unsure && was->said.read_only == tool->said.read_only &&
                was->said.destructive == tool->said.destructive &&
                was->said.idempotent == tool->said.idempotent &&
                was->said.open_world == tool->said.open_world &&
                memcmp(&was->schema_digest, &tool->schema_digest, sizeof(sm_hash)) == 0;
    return same ? was : NULL;
}

/* What was in the list before, or had been before that, and is not in this one. */
static void take_over_gone(const check *k, const mcp_tool *was)
{
    if (was->pinned.n > 0 && mcp_tools_find(k->tools, was->name) == NULL)
        mcp_tools_pin_gone(k->tools, was->name, was->pinned);
}

/* Takes over what came of the list before; true if that was all. */
static bool take_over(const check *k)
{
    bool all = true;
    for (size_t i = 0; i < mcp_tools_count(k->tools); i++) {
        const mcp_tool *was = unchanged(k, mcp_tools_at(k->tools, i));
        if (was != NULL) {
            *mcp_tools_hints(k->tools, i) = was->hints;
            mcp_tools_pin(k->tools, i, was->pinned);
        }
        all &= was != NULL;
    }
    for (size_t i = 0; k->before != NULL && i < mcp_tools_count(k->before); i++)
        take_over_gone(k, mcp_tools_at(k->before, i));
    for (size_t i = 0; k->before != NULL && i < mcp_tools_gone(k->before); i++)
        take_over_gone(k, mcp_tools_gone_at(k->before, i));
    return all;
}

/* The file says nothing: of all but what was taken over nobody knows which defaults count, or none
 * does. */
static void give_up(const check *k)
{
    for (size_t i = 0; i < mcp_tools_count(k->tools); i++) {
        if (unchanged(k, mcp_tools_at(k->tools, i)) != NULL)
            continue;
        if (k->forbidden)
            mcp_tools_pin(k->tools, i, (sm_str){0});
        else
            mcp_tools_doubt(k->tools, i);
    }
}

static pin *find(const check *k, sm_str name, size_t among)
{
    const pin like = {.name = name};
    return among == 0 ? NULL : bsearch(&like, k->pins, among, sizeof *k->pins, by_name);
}

static bool compare(check *k)
{
    bool done = true;
    size_t too_many = 0;
    for (size_t i = 0; done && i < mcp_tools_count(k->tools); i++) {
        const mcp_tool *tool = mcp_tools_at(k->tools, i);
        if (unchanged(k, tool) != NULL)
            continue;
        pin *p = find(k, tool->name, k->known);
        if (p != NULL) {
            compare_hints(k, p, mcp_tools_hints(k->tools, i));
            done = compare_schema(k, tool, p);
        } else if (k->n < MCP_TOOLS_MAX) {
            p = &k->pins[k->n++];
            *p = (pin){.name = tool->name, .hints = tool->hints, .seen = sm_str_from(k->now)};
            done = compare_schema(k, tool, p);
        } else {
            too_many++;
        }
        if (done)
            mcp_tools_pin(k->tools, i, p == NULL ? (sm_str){0} : p->defaults);
    }
    for (size_t i = 0; done && i < k->known; i++)
        if (k->pins[i].defaults.n > strlen(NO_DEFAULTS))
            mcp_tools_pin_gone(k->tools, k->pins[i].name, k->pins[i].defaults);
    if (!done)
        tell(k, "the pinned tools in %s need more memory than there is", k->path);
    if (too_many > 0)
        tell(k,
             "%s has %u pinned tools, which is as many as it can: %zu of the server's are not "
             "pinned. Remove those that are gone.",
             k->path, MCP_TOOLS_MAX, too_many);
    return done;
}

/* ---- writing ---------------------------------------------------------------------------------*/

static void put_pins(sm_buf *b, const check *k)
{
    sm_buf_text(b, "{\"version\":1,\"tools\":{");
    for (size_t i = 0; i < k->n; i++) {
        const pin *p = &k->pins[i];
        sm_buf_text(b, i == 0 ? "\n" : ",\n");
        sm_json_put_string(b, p->name);
        sm_buf_text(b, ":{");
        sm_put_bool(b, "readOnlyHint", p->hints.read_only);
        sm_put_bool(b, "destructiveHint", p->hints.destructive);
        sm_put_bool(b, "idempotentHint", p->hints.idempotent);
        sm_put_bool(b, "openWorldHint", p->hints.open_world);
        sm_put_raw(b, "inputDefaults", p->defaults);
        sm_put_name(b, "inputSchemaSha256");
        sm_json_put_string(b, p->digest);
        sm_put_name(b, "firstSeen");
        sm_json_put_string(b, p->seen);
        sm_buf_byte(b, '}');
    }
    sm_buf_text(b, "\n}}\n");
}

/* Puts a new file in the place of the old one, or leaves that as it was. */
static bool replace(const char *path, sm_str text)
{
    char name[PATH_MAX + 8];
    snprintf(name, sizeof name, "%s.XXXXXX", path);
    int fd = mkostemp(name, O_CLOEXEC); /* its owner's alone */
    if (fd < 0)
        return false;
    bool done = sm_file_write(fd, text) && fsync(fd) == 0;
    int saved = errno;
    if (close(fd) != 0 && done) {
        saved = errno;
        done = false;
    }
    if (done && rename(name, path) != 0) {
        saved = errno;
        done = false;
    }
    if (!done)
        unlink(name);
    errno = saved;
    return done;
}

/* The new pins are not in the file, so their defaults do not count. */
static void unpin(const check *k, bool unsure)
{
    for (size_t i = 0; i < mcp_tools_count(k->tools); i++) {
        const pin *p = find(k, mcp_tools_at(k->tools, i)->name, k->n);
        if (p == NULL || !p->fresh)
            continue;
        if (unsure)
            mcp_tools_doubt(k->tools, i);
        else
            mcp_tools_pin(k->tools, i, (sm_str){0});
    }
}

#define UNNOTICED "Later changes of them are not noticed, and "

static void write_pins(check *k)
{
    sm_buf text;
    sm_buf_init(&text, PINS_BYTES_MAX);
    if (k->n > 1)
        qsort(k->pins, k->n, sizeof *k->pins, by_name);
    put_pins(&text, k);
    int error = text.err != SM_OK                       ? 0
                : k->busy                               ? EWOULDBLOCK
                : !replace(k->path, sm_buf_view(&text)) ? errno
                                                        : 0;
    bool unsure = error != 0 ? !is_forbidden(error) : text.err == SEMEL_E_NOMEM;
    if (text.err != SM_OK)
        tell(k, "the tools cannot be pinned in %s: %s. " UNNOTICED "%s.", k->path,
             semel_err_text(text.err), unsure ? REFUSED : UNEQUAL);
    else if (error != 0)
        tell(k, "the tools cannot be pinned in %s: %s. " UNNOTICED "%s.", k->path,
             k->busy ? "another process has its lock" : strerror(error),
             unsure ? REFUSED : UNEQUAL);
    if (text.err != SM_OK || error != 0)
        unpin(k, unsure);
    sm_buf_fini(&text);
}

/* ---- taking turns ----------------------------------------------------------------------------*/

/* -1: it is done without. *busy: somebody else does not let go of it. */
static int take_turn(const char *path, bool *busy)
{
    char name[PATH_MAX + 8];
    snprintf(name, sizeof name, "%s.lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    const struct timespec pause = {.tv_nsec = 10000000};
    *busy = fd >= 0;
    for (int i = 0; *busy && i < LOCK_TRIES; i++) {
        *busy = flock(fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);
        if (*busy)
            nanosleep(&pause, NULL);
    }
    return fd;
}

/* Nothing is kept: no default counts. That is told if there are any, but not again and again. */
static void keep_nothing(const check *k, const char *why)
{
    bool any = false;
    for (size_t i = 0; i < mcp_tools_count(k->tools); i++) {
        any |= mcp_tools_at(k->tools, i)->latest != NULL;
        mcp_tools_pin(k->tools, i, (sm_str){0});
    }
    if (any && k->before == NULL)
        tell(k, "%s: no change of a tool is noticed, and " UNEQUAL, why);
}

void mcp_pins_check(const char *path, mcp_tools *t, const mcp_tools *before, mcp_pin_fn *tell_fn,
                    void *context)
{
    check k = {.path = path, .tools = t, .before = before, .tell = tell_fn, .context = context};
    if (path == NULL || strlen(path) >= PATH_MAX) {
        keep_nothing(&k, path == NULL ? "there is no directory to pin the tools in (neither "
                                        "XDG_STATE_HOME nor HOME is an absolute path)"
                                      : "the path of the pinned tools is too long");
        return;
    }
    if (take_over(&k))
        return;
    sm_arena_init(&k.arena, 2 * SM_ARENA_MAX);
    sm_stamp_text(sm_clock_ms(), k.now);
    char parents[PATH_MAX];
    snprintf(parents, sizeof parents, "%s", path);
    sm_make_parents(parents); /* writing will say why, if that fails */
    int turn = take_turn(path, &k.busy);
    if (!read_pins(&k) || !compare(&k))
        give_up(&k);
    else if (k.changed)
        write_pins(&k);
    if (turn >= 0)
        close(turn); /* and so the lock is given back */
    sm_arena_fini(&k.arena);
}
