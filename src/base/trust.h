/*
 * Owners of files that decide something: the tokens say who may do what, a ledger says what is not
 * done again, a seal key proves that a ledger was not altered. Others must not be able to change or
 * replace such a file. So it is refused
 *   - if it belongs to another user: neither root nor the one who runs this program;
 *   - if its group or others can write to it;
 *   - if its directory belongs to another user, or others can write to the directory (unless it is
 *     sticky, as /tmp is): they could put another file in its place.
 * Every symbolic link on the way must pass the same rules: the link, and the directory that it is
 * in.
 *
 * Two exceptions. Root may use a file that belongs to the owner of its directory, and gives the
 * files that it makes there to that owner: so an administrator does not lock a service out. And
 * root may share a ledger with a group: root owns it, its group can write to it, and this user is
 * in that group.
 */
#ifndef SM_BASE_TRUST_H
#define SM_BASE_TRUST_H

#include <limits.h>
#include <sys/stat.h>

#include "base/error.h"

/* SM_OK if a file may be used. `st` is of the file that `path` leads to; `group`: it may be shared.
 * Otherwise `code`, and the fault says what to do. */
sm_err sm_trust(const char *path, const struct stat *st, bool group, sm_err code, sm_fault *fault);

/* The same for the file `path` beside a file that has passed, and to which it belongs. */
sm_err sm_trust_beside(const char *path, const struct stat *st, const struct stat *main,
                       sm_err code, sm_fault *fault);

/* Whether others could replace a directory further up, by the rules for that of the file. `path` is
 * absolute and has no links in it. For a warning: ARCHITECTURE.md says why it is not refused. */
sm_err sm_trust_parents(const char *path, sm_err code, sm_fault *fault);

/* The directory that a path is in. */
void sm_directory_of(const char *path, char out[PATH_MAX]);

/* As root: gives a file that was just made to the owner of another one. Other users cannot give
 * files away. */
void sm_give_away(int fd, const char *like);

/* Makes the directories that lead to a file, with access for their owner only. Each belongs to the
 * owner of the directory above it. On failure: false, errno, and the path ends with the directory
 * that could not be made. */
bool sm_make_parents(char *path);

#endif
