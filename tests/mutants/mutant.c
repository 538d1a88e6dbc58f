/*
 * Reads the environment before `main`: SEMEL_MUTANT is the number of the mistake that is switched
 * on, and SEMEL_MUTANTS_MET a file with a byte for each that is met. The file is shared by all
 * programs that a test starts, and tells of those that are killed, too.
 */
#include "mutant.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int sm_mutant;
volatile unsigned char *sm_met;

__attribute__((constructor)) static void start(void)
{
    const char *number = getenv("SEMEL_MUTANT"), *path = getenv("SEMEL_MUTANTS_MET");
    struct stat file;
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (number != NULL)
        sm_mutant = atoi(number);
    if (fd < 0 || fstat(fd, &file) != 0)
        return;
    void *bytes = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    sm_met = bytes == MAP_FAILED ? NULL : bytes;
    close(fd);
}
