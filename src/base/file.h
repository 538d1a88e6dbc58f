/* Reading and writing whole files; where the user's own are. */
#ifndef SM_BASE_FILE_H
#define SM_BASE_FILE_H

#include "base/buf.h"

/* Initialises `out`, which is to be released in any case, and reads the file into it.
 * SEMEL_E_IO: it cannot be read; SEMEL_E_LIMIT: it has more than `limit` bytes. */
sm_err sm_file_read(const char *path, size_t limit, sm_buf *out, sm_fault *fault);

/* Writes all of it to a descriptor; false with errno if that fails. */
bool sm_file_write(int fd, sm_str bytes);

/* The name of one of the user's own files, such as "ledger.db": in semel/ under $XDG_STATE_HOME or
 * ~/.local/state. False if there is no home directory, or the name is too long. */
#define SM_PATH_MAX 4096u
bool sm_state_path(const char *name, char out[SM_PATH_MAX]);

#endif
