/* From a member to what it is a member of. */
#ifndef SM_BASE_CONTAINER_H
#define SM_BASE_CONTAINER_H

#include <stddef.h>

#define SM_CONTAINER(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
