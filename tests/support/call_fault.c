/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in for the calls: each passes on to the real one unless its time has come. */
#include "tests/support/call_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct io_uring;
struct iovec;

/* No signal comes for ever: so many interruptions in a row are what EINTR can be at most. */
enum { INTERRUPTIONS = 200 };

static struct {
	atomic_int call; /* CALLS: none */
	atomic_uint left;
	atomic_bool met;
	atomic_uint interruptions;
	int answer;
	bool persistent;
} fault = {.call = CALLS};

static const char *const names[CALLS] = {
	[CALL_OPEN] = "open",
	[CALL_OPENAT] = "openat",
	[CALL_FSTAT] = "fstat",
	[CALL_FSTATAT] = "fstatat",
	[CALL_STATX] = "statx",
	[CALL_FALLOCATE] = "fallocate",
	[CALL_FTRUNCATE] = "ftruncate",
	[CALL_FCHMOD] = "fchmod",
	[CALL_FCNTL] = "fcntl",
	[CALL_FSYNC] = "fsync",
	[CALL_LINKAT] = "linkat",
	[CALL_RENAMEAT] = "renameat",
	[CALL_RENAMEAT2] = "renameat2",
	[CALL_GETRANDOM] = "getrandom",
	[CALL_MMAP] = "mmap",
	[CALL_THREAD] = "pthread_create",
	[CALL_URING_SETUP] = "io_uring_queue_init",
	[CALL_URING_REGISTER_MEMORY] = "io_uring_register_buffers",
	[CALL_URING_REGISTER_FILE] = "io_uring_register_files",
	[CALL_URING_SUBMIT] = "io_uring_submit",
	[CALL_SYSCALL] = "syscall",
	[CALL_PREAD] = "pread",
	[CALL_PWRITE] = "pwrite",
	[CALL_WRITE] = "write",
};

const char *call_name(enum call call)
{
	return names[call];
}

void call_fault_set(enum call call, unsigned n, int answer, bool persistent)
{
	fault.answer = answer;
	fault.persistent = persistent;
	atomic_store(&fault.met, false);
	atomic_store(&fault.interruptions, 0);
	atomic_store(&fault.left, n);
	atomic_store(&fault.call, (int)call);
}

bool call_fault_clear(void)
{
	atomic_store(&fault.call, CALLS);
	return atomic_load(&fault.met);
}

static bool due(enum call call)
{
	unsigned left;

	if (atomic_load(&fault.call) != (int)call)
		return false;
	left = atomic_load(&fault.left);
	while (left && !atomic_compare_exchange_weak(&fault.left, &left, left - 1))
		;
	if (left > 1 || (left == 0 && !fault.persistent))
		return false;
	if (fault.answer == EINTR && atomic_fetch_add(&fault.interruptions, 1) >= INTERRUPTIONS)
		return false;
	atomic_store(&fault.met, true);
	return true;
}

/* True when the call is to fail: errno is set. */
static bool fails(enum call call)
{
	if (!due(call))
		return false;
	errno = fault.answer;
	return true;
}

/* How much of `length` a transfer is to move, or -1 with errno set. */
static ssize_t cut(enum call call, size_t length)
{
	if (!due(call))
		return (ssize_t)length;
	switch (fault.answer) {
	case SHORT_BY_ONE:
		return length > 1 ? (ssize_t)length - 1 : (ssize_t)length;
	case SHORT_BY_HALF:
		return length > 1 ? (ssize_t)(length / 2) : (ssize_t)length;
	case SHORT_BY_ALL:
		return 0;
	default:
		errno = fault.answer;
		return -1;
	}
}

/* The linker sends the product's calls of X to __wrap_X, and __real_X to what X was. */
#define STAND_IN(type, call, name, parameters, arguments)                                          \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		return fails(call) ? (type)-1 : __real_##name arguments;                           \
	}
/* The same of functions that answer a negative errno. */
#define STAND_IN_NEGATIVE(call, name, parameters, arguments)                                       \
	int __real_##name parameters;                                                              \
	int __wrap_##name parameters;                                                              \
	int __wrap_##name parameters                                                               \
	{                                                                                          \
		return fails(call) ? -errno : __real_##name arguments;                             \
	}

STAND_IN(int, CALL_FSTAT, fstat, (int fd, struct stat *status), (fd, status))
STAND_IN(int, CALL_FSTATAT, fstatat, (int fd, const char *path, struct stat *status, int flags),
	(fd, path, status, flags))
STAND_IN(int, CALL_STATX, statx,
	(int fd, const char *path, int flags, unsigned mask, struct statx *status),
	(fd, path, flags, mask, status))
STAND_IN(int, CALL_FALLOCATE, fallocate, (int fd, int mode, off_t offset, off_t length),
	(fd, mode, offset, length))
STAND_IN(int, CALL_FTRUNCATE, ftruncate, (int fd, off_t length), (fd, length))
STAND_IN(int, CALL_FCHMOD, fchmod, (int fd, mode_t mode), (fd, mode))
STAND_IN(int, CALL_FSYNC, fsync, (int fd), (fd))
STAND_IN(int, CALL_LINKAT, linkat,
	(int from_fd, const char *from, int to_fd, const char *to, int flags),
	(from_fd, from, to_fd, to, flags))
STAND_IN(int, CALL_RENAMEAT, renameat, (int from_fd, const char *from, int to_fd, const char *to),
	(from_fd, from, to_fd, to))
STAND_IN(int, CALL_RENAMEAT2, renameat2,
	(int from_fd, const char *from, int to_fd, const char *to, unsigned flags),
	(from_fd, from, to_fd, to, flags))
STAND_IN(ssize_t, CALL_GETRANDOM, getrandom, (void *bytes, size_t length, unsigned flags),
	(bytes, length, flags))
STAND_IN_NEGATIVE(CALL_URING_SETUP, io_uring_queue_init,
	(unsigned entries, struct io_uring *ring, unsigned flags), (entries, ring, flags))
STAND_IN_NEGATIVE(CALL_URING_REGISTER_MEMORY, io_uring_register_buffers,
	(struct io_uring * ring, const struct iovec *pieces, unsigned count), (ring, pieces, count))
STAND_IN_NEGATIVE(CALL_URING_REGISTER_FILE, io_uring_register_files,
	(struct io_uring * ring, const int *files, unsigned count), (ring, files, count))
STAND_IN_NEGATIVE(CALL_URING_SUBMIT, io_uring_submit, (struct io_uring * ring), (ring))

void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (fails(CALL_MMAP))
		return MAP_FAILED;
	return __real_mmap(address, length, protection, flags, fd, offset);
}

int __real_pthread_create(
	pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(
	pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(
	pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	return fails(CALL_THREAD) ? errno
				  : __real_pthread_create(thread, attributes, run, argument);
}

/* ---- those with variable arguments ---- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	va_list arguments;
	unsigned mode;

	va_start(arguments, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, unsigned) : 0;
	va_end(arguments);
	return fails(CALL_OPEN) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...)
{
	va_list arguments;
	unsigned mode;

	va_start(arguments, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, unsigned) : 0;
	va_end(arguments);
	return fails(CALL_OPENAT) ? -1 : __real_openat(directory, path, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *); /* a number or a pointer: the kernel's business */
	va_end(arguments);
	return fails(CALL_FCNTL) ? -1 : __real_fcntl(fd, command, argument);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	va_list arguments;
	long a[6];

	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(arguments, long);
	va_end(arguments);
	/* To give something back never fails. */
	if (number != SYS_io_destroy && fails(CALL_SYSCALL))
		return -1;
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- transfers ---- */

ssize_t __real_pread(int fd, void *bytes, size_t length, off_t offset);
ssize_t __wrap_pread(int fd, void *bytes, size_t length, off_t offset);
ssize_t __wrap_pread(int fd, void *bytes, size_t length, off_t offset)
{
	ssize_t part = cut(CALL_PREAD, length);

	return part <= 0 && length ? part : __real_pread(fd, bytes, (size_t)part, offset);
}

ssize_t __real_pwrite(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
	ssize_t part = cut(CALL_PWRITE, length);

	return part <= 0 && length ? part : __real_pwrite(fd, bytes, (size_t)part, offset);
}

ssize_t __real_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length)
{
	ssize_t part = cut(CALL_WRITE, length);

	return part <= 0 && length ? part : __real_write(fd, bytes, (size_t)part);
}
