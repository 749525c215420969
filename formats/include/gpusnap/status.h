/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_STATUS_H
#define GPUSNAP_STATUS_H
/*
 * What every fallible function answers, and the detail of a failure.
 *
 * A status says what the caller should do; the message of the error says what happened: the
 * object, the two values that disagree, the remedy. The library never prints and never exits.
 */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSNAP_API	  __attribute__((visibility("default")))
#define GPUSNAP_NODISCARD __attribute__((warn_unused_result))

/* X(name, number, exit status of the command, text). Numbers are stable. */
#define GPUSNAP_STATUS_MAP(X)                                                                      \
	X(OK, 0, 0, "success")                                                                     \
	X(E_INVALID, -1, 2, "invalid argument")                                                    \
	X(E_IO, -2, 3, "input/output error")                                                       \
	X(E_FORMAT, -3, 4, "malformed format")                                                     \
	X(E_UNSUPPORTED, -4, 4, "unsupported feature or version")                                  \
	X(E_CORRUPT, -5, 1, "content does not match its digest")                                   \
	X(E_MISMATCH, -6, 1, "objects differ")                                                     \
	X(E_NOT_PROVED, -7, 1, "not proved")                                                       \
	X(E_DEVICE, -8, 5, "device error")                                                         \
	X(E_NODEV, -9, 5, "no such device")                                                        \
	X(E_NOMEM, -10, 6, "out of memory")                                                        \
	X(E_LIMIT, -11, 6, "limit exceeded")                                                       \
	X(E_STATE, -12, 7, "wrong state")                                                          \
	X(E_BUSY, -13, 7, "busy")

typedef enum gpusnap_status {
#define GPUSNAP_STATUS_ENUM(name, number, exit_status, text) GPUSNAP_##name = (number),
	GPUSNAP_STATUS_MAP(GPUSNAP_STATUS_ENUM)
#undef GPUSNAP_STATUS_ENUM
} gpusnap_status;

/* Owned by the caller, filled only on failure. Needs no initialisation and no release. */
typedef struct gpusnap_error {
	gpusnap_status status;
	int os_errno;	 /* errno of the failing call, or 0 */
	int device_code; /* vendor runtime's code, or 0 */
	uint32_t reserved;
	uint64_t offset; /* file offset that the failure is about, or 0 */
	char message[512];
} gpusnap_error;

/** Name of a status, "E_IO"; "E_UNKNOWN" for a number that is none. Static string. */
GPUSNAP_API const char *gpusnap_status_name(gpusnap_status status);
/** One-line text of a status. Static string. */
GPUSNAP_API const char *gpusnap_status_text(gpusnap_status status);
/** Exit status that the command answers for it (DESIGN: 0 yes, 1 no, 2 usage, 3 I/O, ...). */
GPUSNAP_API int gpusnap_status_exit(gpusnap_status status);
/** Status with that name, or GPUSNAP_E_INVALID for none. */
GPUSNAP_API gpusnap_status gpusnap_status_from_name(const char *name);

#ifdef __cplusplus
}
#endif
#endif
