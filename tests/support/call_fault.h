/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_CALL_FAULT_H
#define GPUSNAP_TEST_CALL_FAULT_H
/*
 * Make the n-th call of a kind fail, once or for ever from there on. The calls are those to the
 * system, caught by the linker (tests/fault/CMakeLists.txt), so that the product
 * under test is the one that is shipped. One fault at a time; calls may come from any thread.
 */
#include <stdbool.h>

enum call {
	CALL_OPEN,
	CALL_OPENAT,
	CALL_FSTAT,
	CALL_FSTATAT,
	CALL_STATX,
	CALL_FALLOCATE,
	CALL_FTRUNCATE,
	CALL_FCHMOD,
	CALL_FCNTL,
	CALL_FSYNC,
	CALL_LINKAT,
	CALL_RENAMEAT,
	CALL_RENAMEAT2,
	CALL_GETRANDOM,
	CALL_MMAP,
	CALL_THREAD,
	CALL_URING_SETUP,
	CALL_URING_REGISTER_MEMORY,
	CALL_URING_REGISTER_FILE,
	CALL_URING_SUBMIT,
	CALL_SYSCALL, /* Linux AIO, and what the C library has no function for */
	CALL_PREAD,   /* these three transfer bytes */
	CALL_PWRITE,
	CALL_WRITE,
	CALLS,
};

/* Besides an errno, a transfer may come out short: of one byte, of half, of all. */
enum { SHORT_BY_ONE = -1, SHORT_BY_HALF = -2, SHORT_BY_ALL = -3 };

/* The n-th call from now (1: the next) gives `answer`: an errno, or one of the above. */
void call_fault_set(enum call call, unsigned n, int answer, bool persistent);
/* Whether it was met; disarms. */
bool call_fault_clear(void);
const char *call_name(enum call call);

#endif
