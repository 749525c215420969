/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refuse WHAT ERRNO COMMAND...: run a command to which the kernel refuses some ways of I/O. WHAT is
 * uring, aio or uring,aio; ERRNO is EPERM or ENOSYS. Exit status 77 where no filter can be set.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/refuse_syscalls.h"

enum { SKIP = 77, USAGE = 2 };

int main(int argc, char **argv)
{
	int error, set = 1;

	if (argc < 4) {
		(void)fprintf(
			stderr, "usage: refuse uring|aio|uring,aio EPERM|ENOSYS COMMAND...\n");
		return USAGE;
	}
	error = strcmp(argv[2], "ENOSYS") == 0 ? ENOSYS : EPERM;
	if (strstr(argv[1], "uring"))
		set = refuse_syscalls(uring_syscalls, 1, error);
	if (set && strstr(argv[1], "aio"))
		set = refuse_syscalls(aio_syscalls, 1, error);
	if (!set) {
		(void)fprintf(stderr, "refuse: no seccomp filter: %s\n", strerror(errno));
		return SKIP;
	}
	(void)execvp(argv[3], argv + 3);
	(void)fprintf(stderr, "refuse: %s: %s\n", argv[3], strerror(errno));
	return USAGE;
}
