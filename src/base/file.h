/* Reading a small file whole. */
#ifndef SM_BASE_FILE_H
#define SM_BASE_FILE_H

#include "base/buf.h"

/* Initialises `out`, which is to be released in any case, and reads the file into it.
 * SEMEL_E_IO: it cannot be read; SEMEL_E_LIMIT: it has more than `limit` bytes. */
sm_err sm_file_read(const char *path, size_t limit, sm_buf *out, sm_fault *fault);

#endif
