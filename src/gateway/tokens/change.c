/*
 * Making and revoking tokens: the file is changed whole or not at all.
 *
 * A change is made under a lock on a file beside it (PATH.lock), in a new file (PATH.new) that is
 * synced and then takes the old one's name. The lock is not on the file itself, which is replaced.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/trust.h"
#include "gateway/tokens.h"
#include "json/write.h"

#define PATH_ROOM (PATH_MAX + 8)

_Static_assert(sizeof GW_TOKEN_PREFIX + GW_ID_TEXT + 1 + SM_HASH_TEXT <= GW_TOKEN_TEXT,
               "a token has its room");

/* A change under way. */
typedef struct change {
    char
        path[PATH_MAX]; /* with links resolved: the file that is replaced is the one they lead to */
    int lock;
    gw_token_list list;
} change;

/* A file that replaces the token file, or is made beside it, gets the owner of the token file, else
 * that of the directory. */
static void give_away_file(int fd, const char *path)
{
    char parent[PATH_MAX];
    sm_directory_of(path, parent);
    sm_give_away(fd, access(path, F_OK) == 0 ? path : parent);
}

/* The file that changes are locked with: empty, and no other name of something else. */
static bool is_lock(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_size == 0;
}

static sm_err lock(change *c, sm_fault *fault)
{
    char name[PATH_ROOM];
    snprintf(name, sizeof name, "%s.lock", c->path);
    c->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (c->lock < 0)
        return sm_fault_set(
            fault, SEMEL_E_IO, "%s, which keeps two changes apart, cannot be opened: %s%s", name,
            strerror(errno), access(name, F_OK) == 0 ? "; remove it if nobody makes a token" : "");
    if (is_lock(c->lock))
        give_away_file(c->lock, c->path);
    while (flock(c->lock, LOCK_EX) != 0) {
        if (errno != EINTR)
            return sm_fault_set(fault, SEMEL_E_IO, "%s cannot be locked: %s", name,
                                strerror(errno));
    }
    return SM_OK;
}

static sm_err change_start(const char *path, change *c, sm_fault *fault)
{
    c->list = (gw_token_list){0};
    c->lock = -1;
    if (strlen(path) >= sizeof c->path)
        return sm_fault_set(fault, SEMEL_E_LIMIT, "the path of the tokens is too long");
    if (realpath(path, c->path) == NULL)
        snprintf(c->path, sizeof c->path, "%s", path);
    if (!sm_make_parents(c->path))
        return sm_fault_set(fault, SEMEL_E_IO, "the directory %s for the tokens cannot be made: %s",
                            c->path, strerror(errno));
    sm_err e = lock(c, fault);
    if (e == SM_OK)
        e = gw_tokens_read(c->path, &c->list, fault);
    return e == SEMEL_E_NOT_FOUND ? SM_OK : e; /* it is made now */
}

void gw_token_put(sm_buf *out, const gw_token *t)
{
    sm_put_text(out, "id", sm_str_from(t->id));
    sm_put_text(out, "name", sm_str_from(t->name));
    sm_put_text(out, "role", sm_str_from(gw_role_name(t->role)));
    if (t->scope[0] != '\0')
        sm_put_text(out, "scope", sm_str_from(t->scope));
}

static void put_token(sm_buf *b, const gw_token *t)
{
    sm_buf_byte(b, '{');
    gw_token_put(b, t);
    sm_put_hash(b, "sha256", &t->hash);
    sm_put_signed(b, "made_at_ms", t->made_at);
    if (t->ends_at != 0)
        sm_put_signed(b, "ends_at_ms", t->ends_at);
    sm_buf_byte(b, '}');
}

/* A new name lasts only once its directory is on the disk. */
static bool sync_directory(const char *path)
{
    char parent[PATH_MAX];
    sm_directory_of(path, parent);
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    if (fd >= 0)
        close(fd);
    return done;
}

static sm_err replace(const char *path, sm_str bytes, sm_fault *fault)
{
    char fresh[PATH_ROOM];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    unlink(fresh); /* of somebody who died; ours is new, and no other name of something else */
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return sm_fault_set(fault, SEMEL_E_IO, "%s cannot be made: %s", fresh, strerror(errno));
    give_away_file(fd, path);
    bool done = fchmod(fd, 0600) == 0 && sm_file_write(fd, bytes) && fsync(fd) == 0;
    done &= close(fd) == 0;
    done = done && rename(fresh, path) == 0 && sync_directory(path);
    return done ? SM_OK : gw_tokens_failed(path, "written", fault);
}

static sm_err change_apply(change *c, sm_fault *fault)
{
    sm_buf b;
    char key[SM_HASH_TEXT + 1];
    sm_hash *made = gw_session_key_given(&c->list) ? NULL : &c->list.session_key;
    if (made != NULL && getrandom(made->b, sizeof made->b, 0) != (ssize_t)sizeof made->b)
        return sm_fault_set(fault, SEMEL_E_CRYPTO, "%s", semel_err_text(SEMEL_E_CRYPTO));
    sm_buf_init(&b, GW_TOKENS_BYTES_MAX);
    sm_hash_text(&c->list.session_key, key);
    sm_buf_printf(&b, "{\"version\":1,\"session_key\":\"%s\",\"tokens\":[", key);
    explicit_bzero(key, sizeof key);
    for (size_t i = 0; i < c->list.n; i++) {
        sm_buf_text(&b, i == 0 ? "\n" : ",\n");
        put_token(&b, &c->list.v[i]);
    }
    sm_buf_text(&b, "]}\n");
    sm_err e = b.err != SM_OK ? sm_fault_set(fault, b.err, "%s: %s", c->path, semel_err_text(b.err))
                              : replace(c->path, sm_buf_view(&b), fault);
    sm_buf_fini(&b);
    return e;
}

static void change_end(change *c)
{
    free(c->list.v);
    if (c->lock >= 0)
        close(c->lock);
}

static gw_token *find(const gw_token_list *list, sm_str id)
{
    for (size_t i = 0; i < list->n; i++) {
        if (sm_str_is(id, list->v[i].id))
            return &list->v[i];
    }
    return NULL;
}

/* A token that nobody has yet: its id, its text, and the hash of that. */
static sm_err make(const gw_token_list *list, gw_token *t, char text[GW_TOKEN_TEXT],
                   sm_fault *fault)
{
    static const char letters[] = "0123456789abcdefghjkmnpqrstvwxyz"; /* none is easily misread */
    unsigned char random[GW_ID_TEXT];
    sm_hash secret;
    char secret_text[SM_HASH_TEXT + 1];
    do {
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random ||
            getrandom(secret.b, sizeof secret.b, 0) != (ssize_t)sizeof secret.b)
            return sm_fault_set(fault, SEMEL_E_CRYPTO, "%s", semel_err_text(SEMEL_E_CRYPTO));
        for (size_t i = 0; i < GW_ID_TEXT; i++)
            t->id[i] = letters[random[i] % 32];
    } while (find(list, sm_str_from(t->id)) != NULL);
    sm_hash_text(&secret, secret_text);
    snprintf(text, GW_TOKEN_TEXT, "%s%s_%s", GW_TOKEN_PREFIX, t->id, secret_text);
    explicit_bzero(&secret, sizeof secret);
    explicit_bzero(secret_text, sizeof secret_text);
    sm_err e = gw_token_hash(sm_str_from(text), &t->hash);
    return e == SM_OK ? e : sm_fault_set(fault, e, "%s", semel_err_text(e));
}

sm_err gw_token_create(const char *path, const gw_token *what, char text[GW_TOKEN_TEXT],
                       gw_token *made, sm_fault *fault)
{
    change c;
    text[0] = '\0';
    *made = *what;
    made->made_at = sm_clock_ms();
    memset(made->id, 0, sizeof made->id);
    sm_err e = gw_token_right(sm_str_from(what->name), sm_str_from(what->scope), fault);
    if (e != SM_OK)
        return e;
    e = change_start(path, &c, fault);
    if (e == SM_OK && c.list.n >= GW_TOKENS_MAX)
        e = sm_fault_set(fault, SEMEL_E_LIMIT,
                         "there are %u tokens already, which is the most; revoke some",
                         GW_TOKENS_MAX);
    if (e == SM_OK)
        e = make(&c.list, made, text, fault);
    if (e == SM_OK) {
        gw_token *v = realloc(c.list.v, (c.list.n + 1) * sizeof *v);
        if (v != NULL) {
            c.list.v = v;
            v[c.list.n++] = *made;
            e = change_apply(&c, fault);
        } else {
            e = sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
        }
    }
    if (e != SM_OK)
        explicit_bzero(text, GW_TOKEN_TEXT);
    change_end(&c);
    return e;
}

sm_err gw_token_revoke(const char *path, sm_str id, sm_fault *fault)
{
    change c;
    sm_err e = change_start(path, &c, fault);
    gw_token *found = e == SM_OK ? find(&c.list, id) : NULL;
    if (e == SM_OK && found == NULL)
        e = sm_fault_set(fault, SEMEL_E_NOT_FOUND,
                         "there is no token \"%.*s\" in %s; semel token list shows their ids",
                         (int)(id.n < 80 ? id.n : 80), id.p, c.path);
    if (e == SM_OK) {
        size_t behind = c.list.n - (size_t)(found - c.list.v) - 1;
        memmove(found, found + 1, behind * sizeof *found);
        c.list.n--;
        e = change_apply(&c, fault);
    }
    change_end(&c);
    return e;
}
