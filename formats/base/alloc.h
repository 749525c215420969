/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_ALLOC_H
#define GSN_ALLOC_H
/*
 * The only place that allocates heap memory. Zero-filled; NULL on failure or overflow; tests
 * make the n-th call fail by linking with --wrap=gsn_alloc.
 */
#include <stddef.h>

void *gsn_alloc(size_t count, size_t size);
/* Grow `old` from old_count to new_count elements, the new ones zero. `old` stays on failure. */
void *gsn_grow(void *old, size_t old_count, size_t new_count, size_t size);
char *gsn_strdup(const char *text);
char *gsn_strndup(const char *text, size_t length);
char *gsn_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gsn_free(void *memory); /* takes NULL */

#endif
