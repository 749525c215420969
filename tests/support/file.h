/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_FILE_H
#define GPUSNAP_TEST_FILE_H
/*
 * Whole files in memory. The memory has exactly the file's size, so that ASan sees over-reads.
 * Does not need Check, for programs that run outside of it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline void read_failed(const char *path)
{
	perror(path);
	abort();
}

/* The caller frees it. Ends the test when the file cannot be read. */
static inline uint8_t *read_file(const char *path, size_t *ret_length)
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes = NULL;
	long length = -1;

	if (file && fseek(file, 0, SEEK_END) == 0)
		length = ftell(file);
	if (length < 0)
		read_failed(path);
	rewind(file);
	bytes = malloc(length ? (size_t)length : 1);
	if (!bytes || fread(bytes, 1, (size_t)length, file) != (size_t)length || fclose(file))
		read_failed(path);
	*ret_length = (size_t)length;
	return bytes;
}

#endif
