/* Owners and permissions of files, and giving away what root makes. */
#include "base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_ROOM 40
#define LINKS_MAX 40 /* as many as the kernel follows */

void sm_directory_of(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(out, PATH_MAX, "%.*s", slash == NULL ? 1 : (int)(slash - path) + (slash == path),
             slash == NULL ? "." : path);
}

/* ---- checking --------------------------------------------------------------------------------*/

static void name_of(uid_t uid, char out[NAME_ROOM])
{
    char room[4096];
    struct passwd entry, *user = NULL;
    getpwuid_r(uid, &entry, room, sizeof room, &user);
    if (user != NULL && strlen(user->pw_name) < NAME_ROOM)
        strcpy(out, user->pw_name);
    else
        snprintf(out, NAME_ROOM, "%u", (unsigned)uid);
}

static bool in_group(gid_t group)
{
    bool found = geteuid() == 0 || getegid() == group;
    int n = getgroups(0, NULL);
    gid_t *all = n > 0 ? malloc((size_t)n * sizeof *all) : NULL;
    n = all == NULL ? 0 : getgroups(n, all);
    for (int i = 0; i < n && !found; i++)
        found = all[i] == group;
    free(all);
    return found;
}

/* Root has given the file to a group. That is deliberate: it does not happen by itself. */
static bool is_shared(const struct stat *st)
{
    return st->st_uid == 0 && st->st_gid != 0 && (st->st_mode & (S_IWGRP | S_IWOTH)) == S_IWGRP &&
           in_group(st->st_gid);
}

/* For links: who owns the root directory can lead every path elsewhere. In a user namespace without
 * root that is not user 0. */
static bool owns_all(uid_t owner)
{
    struct stat st;
    return owner == 0 || (stat("/", &st) == 0 && st.st_uid == owner);
}

static bool is_ours(uid_t owner)
{
    return owner == 0 || owner == geteuid();
}

typedef enum kind { A_FILE, A_LINK, BESIDE } kind; /* BESIDE: beside a ledger */

/* A link is meant itself, not what it leads to. */
static sm_err foreign(const char *path, uid_t owner, kind what, sm_err code, sm_fault *fault)
{
    char theirs[NAME_ROOM], ours[NAME_ROOM];
    name_of(owner, theirs);
    name_of(geteuid(), ours);
    return sm_fault_set(fault, code,
                        "%.180s is owned by the user \"%s\", who could put anything into it%s. If "
                        "you trust what is in it now: chown %s%s %.180s",
                        path, theirs, what == BESIDE ? ": look at it, or move it away" : "",
                        what == A_LINK ? "-h " : "", ours, path);
}

static sm_err open_to_others(const char *path, sm_err code, sm_fault *fault)
{
    return sm_fault_set(fault, code,
                        "others can write to %.180s. If you trust what is in it now: chmod 600 "
                        "%.180s",
                        path, path);
}

/* The directory of a path; its owner in *owner. */
static sm_err check_directory(const char *path, uid_t *owner, sm_err code, sm_fault *fault)
{
    char directory[PATH_MAX], name[NAME_ROOM];
    struct stat st;
    sm_directory_of(path, directory);
    if (stat(directory, &st) != 0)
        return sm_fault_set(fault, code, "%.180s: %s", directory, strerror(errno));
    *owner = st.st_uid;
    if ((st.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH)
        return sm_fault_set(fault, code,
                            "others can write to the directory of %.180s and so replace it: chmod "
                            "o-w %.180s",
                            path, directory);
    name_of(st.st_uid, name);
    if (!is_ours(st.st_uid) && geteuid() != 0)
        return sm_fault_set(
            fault, code,
            "the directory of %.180s is owned by the user \"%s\", who could replace "
            "it: move it into a directory of your own",
            path, name);
    return SM_OK;
}

static bool right_owner(uid_t owner, uid_t of_directory)
{
    return is_ours(owner) || (geteuid() == 0 && owner == of_directory);
}

/* One link: who could make it lead elsewhere. */
static sm_err check_link(const char *path, uid_t link, sm_err code, sm_fault *fault)
{
    uid_t owner;
    char directory[PATH_MAX];
    struct stat st;
    sm_directory_of(path, directory);
    if (owns_all(link) && stat(directory, &st) == 0 && owns_all(st.st_uid) &&
        (st.st_mode & (S_IWOTH | S_ISVTX)) != S_IWOTH)
        return SM_OK;
    sm_err e = check_directory(path, &owner, code, fault);
    if (e == SM_OK && !right_owner(link, owner))
        e = foreign(path, link, A_LINK, code, fault);
    return e;
}

/* Every link on the way to a file: the path is walked name by name, and a link's target is walked
 * in its place. */
static sm_err check_links(const char *path, sm_err code, sm_fault *fault)
{
    char at[PATH_MAX], rest[PATH_MAX], target[PATH_MAX], next[PATH_MAX];
    size_t walked = 0; /* of `at` */
    int links = 0;
    if (strlen(path) >= sizeof rest)
        return sm_fault_set(fault, code, "%.180s: %s", path, strerror(ENAMETOOLONG));
    strcpy(rest, path);
    while (rest[0] != '\0') {
        struct stat st;
        size_t n = rest[0] == '/' ? strspn(rest, "/") : strcspn(rest, "/");
        if (walked + n >= sizeof at)
            return sm_fault_set(fault, code, "%.180s: %s", path, strerror(ENAMETOOLONG));
        memcpy(at + walked, rest, n);
        at[walked + n] = '\0';
        if (rest[0] == '/' || lstat(at, &st) != 0 || !S_ISLNK(st.st_mode)) {
            walked += n;
            memmove(rest, rest + n, strlen(rest + n) + 1);
            continue;
        }
        sm_err e = check_link(at, st.st_uid, code, fault);
        if (e != SM_OK)
            return e;
        ssize_t got = readlink(at, target, sizeof target - 1);
        if (got <= 0 || ++links > LINKS_MAX ||
            snprintf(next, sizeof next, "%.*s%s", (int)got, target, rest + n) >= (int)sizeof next)
            return sm_fault_set(fault, code, "%.180s: %s", at, strerror(ELOOP));
        strcpy(rest, next);
        if (rest[0] == '/')
            walked = 0;
    }
    return SM_OK;
}

sm_err sm_trust(const char *path, const struct stat *st, bool group, sm_err code, sm_fault *fault)
{
    char real[PATH_MAX];
    uid_t owner;
    if (!S_ISREG(st->st_mode))
        return sm_fault_set(fault, code, "%.180s is not a file", path);
    sm_err e = check_links(path, code, fault);
    if (e != SM_OK)
        return e;
    if (realpath(path, real) == NULL)
        return sm_fault_set(fault, code, "%.180s cannot be found: %s", path, strerror(errno));
    e = check_directory(real, &owner, code, fault);
    if (e != SM_OK)
        return e;
    if (!right_owner(st->st_uid, owner))
        return foreign(real, st->st_uid, A_FILE, code, fault);
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0 && !(group && is_shared(st)))
        return open_to_others(real, code, fault);
    return SM_OK;
}

sm_err sm_trust_parents(const char *path, sm_err code, sm_fault *fault)
{
    char at[PATH_MAX], up[PATH_MAX];
    uid_t owner;
    sm_err e = SM_OK;
    sm_directory_of(path, at);
    while (e == SM_OK && at[0] == '/' && at[1] != '\0') {
        e = check_directory(at, &owner, code, fault);
        sm_directory_of(at, up);
        strcpy(at, up);
    }
    return e;
}

sm_err sm_trust_beside(const char *path, const struct stat *st, const struct stat *main,
                       sm_err code, sm_fault *fault)
{
    bool shared = is_shared(main) && st->st_gid == main->st_gid;
    if (!S_ISREG(st->st_mode))
        return sm_fault_set(fault, code, "%.180s is not a file: remove it", path);
    if (!is_ours(st->st_uid) && st->st_uid != main->st_uid && !shared)
        return foreign(path, st->st_uid, BESIDE, code, fault);
    if ((st->st_mode & S_IWOTH) != 0 || ((st->st_mode & S_IWGRP) != 0 && !shared))
        return open_to_others(path, code, fault);
    return SM_OK;
}

/* ---- giving away -----------------------------------------------------------------------------*/

void sm_give_away(int fd, const char *like)
{
    struct stat st;
    if (geteuid() == 0 && stat(like, &st) == 0 && fchown(fd, st.st_uid, st.st_gid) != 0)
        return; /* the service will say that it cannot read it */
}

static bool make_directory(const char *path)
{
    if (mkdir(path, 0700) != 0)
        return errno == EEXIST || access(path, F_OK) == 0;
    char parent[PATH_MAX];
    sm_directory_of(path, parent);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return true; /* somebody has removed it; the next step will say so */
    sm_give_away(fd, parent);
    close(fd);
    return true;
}

bool sm_make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (!make_directory(path))
            return false;
        *slash = '/';
    }
    return true;
}
