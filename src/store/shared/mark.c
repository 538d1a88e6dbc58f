/* The file is replaced whole, so that nobody reads half of it. */
#include "store/shared/mark.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/trust.h"

void sm_mark_init(sm_mark *m, const char *ledger)
{
    sm_digest d;
    sm_hash h;
    char name[SM_HASH_HEX + 8], hex[SM_HASH_HEX + 1];
    m->path[0] = '\0';
    if (sm_digest_init(&d) != SM_OK)
        return;
    if (sm_digest_bytes(&d, ledger, strlen(ledger), &h) == SM_OK) {
        sm_hash_hex(&h, hex);
        snprintf(name, sizeof name, "seen/%.32s", hex);
        if (!sm_state_path(name, m->path))
            m->path[0] = '\0';
    }
    sm_digest_fini(&d);
}

bool sm_mark_read(const sm_mark *m, sm_seen *out)
{
    sm_buf text;
    *out = (sm_seen){0};
    if (m->path[0] == '\0')
        return false;
    bool good = sm_file_read(m->path, SM_MARK_TEXT, &text, NULL) == SM_OK;
    sm_buf_byte(&text, '\0');
    good = good && text.err == SM_OK &&
           sscanf(text.p, "%" SCNd64 " %" SCNd64 " %" SCNx64, &out->seq, &out->id, &out->hash) == 3;
    sm_buf_fini(&text);
    return good;
}

/* A new file beside it, which nobody else writes. */
static int open_new(const sm_mark *m, char *path, size_t size)
{
    snprintf(path, size, "%s.XXXXXX", m->path);
    return mkostemp(path, O_CLOEXEC);
}

void sm_mark_write(const sm_mark *m, const sm_seen *seen)
{
    sm_seen known;
    char text[SM_MARK_TEXT], new_path[SM_PATH_MAX + 16];
    if (m->path[0] == '\0' || (sm_mark_read(m, &known) && known.seq >= seen->seq))
        return;
    int n = snprintf(text, sizeof text, "%" PRId64 " %" PRId64 " %" PRIx64 "\n", seen->seq,
                     seen->id, seen->hash);
    int fd = open_new(m, new_path, sizeof new_path);
    if (fd < 0) {
        char parents[SM_PATH_MAX];
        memcpy(parents, m->path, sizeof parents);
        sm_make_parents(parents); /* if that fails, so does opening it */
        fd = open_new(m, new_path, sizeof new_path);
    }
    if (fd < 0)
        return;
    bool good = sm_file_write(fd, (sm_str){text, (size_t)n});
    if (close(fd) != 0 || !good || rename(new_path, m->path) != 0)
        unlink(new_path);
}

void sm_mark_forget(const sm_mark *m)
{
    if (m->path[0] != '\0')
        unlink(m->path);
}
