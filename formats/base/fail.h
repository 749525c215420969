/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_FAIL_H
#define GSN_FAIL_H
/* Recording a failure. Macros, so that analysers see that the value is a constant non-zero. */
#include <gpusnap/status.h>

void gsn_error_set(gpusnap_error *err, gpusnap_status status, int os_errno, uint64_t offset,
	const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Put "prefix: " in front of the message that is already there. */
void gsn_error_prefix(gpusnap_error *err, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define gsn_fail(err, status, ...) (gsn_error_set((err), (status), 0, 0, __VA_ARGS__), (status))
#define gsn_fail_os(err, status, os_errno, ...)                                                    \
	(gsn_error_set((err), (status), (os_errno), 0, __VA_ARGS__), (status))
#define gsn_fail_at(err, status, offset, ...)                                                      \
	(gsn_error_set((err), (status), 0, (offset), __VA_ARGS__), (status))

/* EIO and the like are E_IO, ENOMEM is E_NOMEM, EMFILE/EDQUOT... are E_LIMIT: see fail.c. */
gpusnap_status gsn_status_from_errno(int os_errno);

#endif
