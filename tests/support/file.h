/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_FILE_H
#define GPUSNAP_TEST_FILE_H
/* Whole files in memory. The memory has exactly the file's size, so that ASan sees over-reads. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/suite.h"

/* The caller frees it. */
static inline uint8_t *read_file(const char *path, size_t *ret_length)
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes;
	long length;

	ck_assert_msg(file != NULL, "cannot open %s", path);
	ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
	length = ftell(file);
	ck_assert_int_ge(length, 0);
	rewind(file);
	bytes = malloc(length ? (size_t)length : 1);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_uint_eq(fread(bytes, 1, (size_t)length, file), (size_t)length);
	ck_assert_int_eq(fclose(file), 0);
	*ret_length = (size_t)length;
	return bytes;
}

#endif
