/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_FLIP_H
#define GPUSNAP_TEST_FLIP_H
/* Damage: bits of files. */
#include <fcntl.h>
#include <unistd.h>

#include "tests/support/suite.h"

/* Flip one bit of an open file; a second time puts it right again. */
static inline void flip_bit(int fd, uint64_t offset, unsigned bit)
{
	uint8_t byte;

	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)offset), 1);
	byte ^= (uint8_t)(1u << bit);
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
}

static inline void flip_bit_of(const char *path, uint64_t offset, unsigned bit)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	flip_bit(fd, offset, bit);
	ck_assert_int_eq(close(fd), 0);
}

#endif
