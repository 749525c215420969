/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H
/* What the rows of `gpusnap bench` share: the device, a state on it, a folder for its files. */
#include <gpusnap/device.h>
#include <gpusnap/io.h>
#include <gpusnap/registry.h>

struct gsn_pool;

enum { BENCH_REPEATS_MAX = 32 };

/* Rates in bytes per second, one of each repeat. */
struct bench_cycle {
	double first, resume, unchanged; /* offload, resume, offload again */
};

struct bench_session {
	gpusnap_device *device;
	const char *device_name;
	struct gsn_pool *pool;
	const char *directory; /* of its own, removed by who made it */
	uint64_t bytes;	       /* of the state, a multiple of 64 MiB */
	uint32_t repeats;
	gpusnap_io_options io;

	/* Made when a row first asks for them. */
	gpusnap_registry *registry;
	char path[4200]; /* snapshot of the state; "" while there is none */
	struct bench_cycle cycles[BENCH_REPEATS_MAX];
	uint32_t cycle_count;
	uint64_t most_besides; /* host memory besides the state, of saves and restores */
};

/* Opens the device; the rest is for the caller to fill in. Valid to close from birth. */
gpusnap_status bench_session_open(
	struct bench_session *session, const char *device, gpusnap_error *err);
void bench_session_close(struct bench_session *session);

/* A registry with a state of session->bytes random bytes. The caller frees it. */
gpusnap_status bench_session_state(
	struct bench_session *session, gpusnap_registry **ret_registry, gpusnap_error *err);
/* session->registry and the snapshot at session->path are there. */
gpusnap_status bench_session_saved(struct bench_session *session, gpusnap_error *err);
/* Save the state anew to session->path, making it first if need be; bytes of the file per second.
 */
gpusnap_status bench_session_save(
	struct bench_session *session, double *ret_rate, gpusnap_error *err);
/* Put the snapshot's bytes back; bytes of the state per second. */
gpusnap_status bench_session_restore(
	struct bench_session *session, double *ret_rate, gpusnap_error *err);
/* The snapshot's pages in the page cache: none, or all. */
gpusnap_status bench_session_cool(const struct bench_session *session, gpusnap_error *err);
gpusnap_status bench_session_warm(const struct bench_session *session, gpusnap_error *err);
/* All cycles of offload and resume, each of a registry of its own. */
gpusnap_status bench_session_cycles(struct bench_session *session, gpusnap_error *err);

/* Random words, the same in every run, to `bytes` of device memory: (word & keep) | set. */
gpusnap_status bench_session_random(const struct bench_session *session, gpusnap_address address,
	uint64_t bytes, uint64_t keep, uint64_t set, gpusnap_error *err);

#endif
