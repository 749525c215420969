/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REFUSE_SYSCALLS_H
#define REFUSE_SYSCALLS_H
/* System calls refused from now on by a seccomp filter, as a container's or an old kernel does. */
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

/* One that stands for all that must not be had without it. */
static const int uring_syscalls[] = {SYS_io_uring_setup};
static const int aio_syscalls[] = {SYS_io_setup};

/* Each of the numbers answers `error`; false when the kernel takes no such filter. */
static inline int refuse_syscalls(const int *numbers, size_t count, int error)
{
	struct sock_filter code[32] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog program = {.filter = code};
	unsigned short length = 1;

	if (2 * count + 2 > sizeof code / sizeof code[0])
		return 0;
	for (size_t i = 0; i < count; i++) {
		code[length++] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[i], 0, 1);
		code[length++] = (struct sock_filter)BPF_STMT(
			BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
	}
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = length;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#endif
