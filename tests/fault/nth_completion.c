/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The n-th completion of io_uring is another than the kernel's: failed, interrupted, short of a
 * byte, of half, of all; once and for ever. n = 1 and on, until a save gets through without
 * meeting it. It is retried where that is right, or the save fails and leaves everything as it was.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <gpusnap/snapshot.h>

#include "formats/base/fail.h"
#include "snapshot/registry_state.h"
#include "snapshot/ring_state.h"
#include "snapshot/save.h"
#include "tests/support/live_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

enum { SHORT_BY_ONE = 1, SHORT_BY_HALF = 2, SHORT_BY_ALL = 3, COMPLETIONS_MAX = 1000 };
/* Errors as the kernel gives them, below zero; or one of the above. */
static const int64_t answers[] = {
	-EIO, -ENOSPC, -EINTR, -EAGAIN, SHORT_BY_ONE, SHORT_BY_HALF, SHORT_BY_ALL};
enum { ANSWERS = sizeof answers / sizeof answers[0] };

static char root[PATH_MAX];

/* ---- io_uring with another end ---- */

static struct {
	unsigned left; /* completions before the first that is changed; 0: none any more */
	int64_t answer;
	bool persistent, met;
} fault;

static unsigned refusals; /* so many waits are refused before the next one is not */

static bool due(void)
{
	if (fault.left == 0)
		return fault.met && fault.persistent;
	fault.met = --fault.left == 0;
	return fault.met;
}

static int64_t changed(int64_t result)
{
	switch (fault.answer) {
	case SHORT_BY_ONE:
		return result > 1 ? result - 1 : result;
	case SHORT_BY_HALF:
		return result > 1 ? result / 2 : result;
	case SHORT_BY_ALL:
		return 0;
	default:
		return fault.answer;
	}
}

static gpusnap_status open_ring(struct gsn_ring *ring, int probe_fd, gpusnap_error *err)
{
	return gsn_ring_uring.open(ring, probe_fd, err);
}

static bool close_ring(struct gsn_ring *ring)
{
	return gsn_ring_uring.close(ring);
}

static bool register_memory(struct gsn_ring *ring, void *memory, uint64_t bytes)
{
	return gsn_ring_uring.register_memory(ring, memory, bytes);
}

static gpusnap_status submit(struct gsn_ring *ring, struct gsn_ring_slot *slot, gpusnap_error *err)
{
	return gsn_ring_uring.submit(ring, slot, err);
}

static gpusnap_status reap(struct gsn_ring *ring, struct gsn_ring_slot **ret_slot,
	int64_t *ret_result, gpusnap_error *err)
{
	gpusnap_status status;

	if (refusals && ring->in_flight) { /* not of the probe */
		refusals--;
		return gsn_fail(err, GPUSNAP_E_NOMEM, "io_uring: wait: refused");
	}
	status = gsn_ring_uring.reap(ring, ret_slot, ret_result, err);
	if (!status && due())
		*ret_result = changed(*ret_result);
	return status;
}

static const struct gsn_ring_engine engine = {
	.name = "uring",
	.open = open_ring,
	.close = close_ring,
	.register_memory = register_memory,
	.submit = submit,
	.reap = reap,
};

/* ---- saves ---- */

struct fixture {
	gpusnap_device *device;
	struct live_state state, other;
	char folder[PATH_MAX], path[PATH_MAX];
	unsigned long met, survived;
};

static gpusnap_status save(
	const struct fixture *f, const struct live_state *state, bool read_back, gpusnap_error *err)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	struct gsn_fs fs = gsn_fs_posix;

	fs.engine = &engine;
	options.replace = true;
	options.read_back = read_back;
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.block_bytes = 64 << 10;
	options.io.depth = 4;
	return gsn_save_on(&fs, state->registry, f->path, &options, NULL, err);
}

static bool holds(const struct fixture *f, const struct live_state *state)
{
	gpusnap_registry *restored;
	gpusnap_error err;
	bool equal;

	ck_ok(gpusnap_registry_from_snapshot(
		f->device, f->path, NULL, NULL, &restored, NULL, &err));
	equal = live_equals(state, restored);
	gpusnap_registry_free(restored);
	return equal;
}

/* Nothing is lost by one of these, so that one is no reason to fail. */
static bool must_be_survived(int64_t answer, bool persistent)
{
	return !persistent && (answer == -EINTR || answer == -EAGAIN || answer == SHORT_BY_ONE ||
				      answer == SHORT_BY_HALF);
}

/* False when the save got through without meeting the n-th completion. */
static bool fail_one(struct fixture *f, bool read_back, int64_t answer, bool persistent, unsigned n)
{
	gpusnap_status status;
	gpusnap_error err;

	fault.left = n;
	fault.answer = answer;
	fault.persistent = persistent;
	fault.met = false;
	status = save(f, &f->other, read_back, &err);
	fault.left = 0;
	fault.persistent = false;
	ck_assert_msg(!status || (fault.met && !must_be_survived(answer, persistent)),
		"completion %u, answer %d: %s", n, (int)answer, err.message);
	if (status)
		ck_assert_msg(strstr(err.message, f->path) != NULL, "%s", err.message);
	ck_assert(holds(f, status ? &f->state : &f->other));
	ck_assert_int_eq(tempdir_count(f->folder), 1);
	if (!status)
		ck_ok(save(f, &f->state, false, &err));
	f->met += fault.met;
	f->survived += fault.met && !status;
	return fault.met;
}

static void fail_each(struct fixture *f, bool read_back, int64_t answer, bool persistent)
{
	unsigned n = 1;

	while (fail_one(f, read_back, answer, persistent, n))
		ck_assert_uint_lt(++n, COMPLETIONS_MAX);
	ck_assert_uint_gt(n, 3); /* several blocks */
}

START_TEST(each_completion_is_retried_or_reported)
{
	struct fixture f = {.met = 0};
	gpusnap_error err;

	tempdir_make(f.folder, root);
	tempdir_join(f.path, f.folder, "state.gsnap");
	ck_ok(gpusnap_device_open("host", &f.device, &err));
	live_random(&f.state, f.device, 83);
	live_random(&f.other, f.device, 84);
	ck_ok(save(&f, &f.state, false, &err));
	for (int i = 0; i < ANSWERS; i++)
		for (int variant = 0; variant < 4; variant++)
			fail_each(&f, variant / 2, answers[i], variant % 2);
	(void)printf("n-th completion: %lu met, %lu of them survived\n", f.met, f.survived);
	live_close(&f.other);
	live_close(&f.state);
	gpusnap_device_close(f.device);
}
END_TEST

/* The memory of a request that may still be on its way is nobody's any more. */
START_TEST(memory_is_not_used_again_while_requests_may_be_under_way)
{
	struct fixture f = {.met = 0};
	gpusnap_error err;

	tempdir_make(f.folder, root);
	tempdir_join(f.path, f.folder, "state.gsnap");
	ck_ok(gpusnap_device_open("host", &f.device, &err));
	live_random(&f.state, f.device, 85);
	refusals = 20;
	ck_fails(save(&f, &f.state, false, &err), GPUSNAP_E_NOMEM, "refused");
	ck_assert_uint_eq(refusals, 0);
	ck_assert_ptr_nonnull(f.state.registry->staging.kept);
	refusals = 1000000;
	ck_fails(save(&f, &f.state, false, &err), GPUSNAP_E_NOMEM, "refused");
	ck_assert_uint_gt(refusals, 0);
	ck_assert_ptr_null(f.state.registry->staging.kept);
	refusals = 0;
	ck_ok(save(&f, &f.state, false, &err));
	ck_assert(holds(&f, &f.state));
	live_close(&f.state);
	gpusnap_device_close(f.device);
}
END_TEST

/* Where io_uring is not allowed there is nothing to be completed. */
static bool has_uring(void)
{
	gpusnap_io_options options = GPUSNAP_IO_OPTIONS_INIT;
	gpusnap_io_report report;
	gpusnap_error err;

	options.engine = GPUSNAP_IO_URING;
	if (gpusnap_io_probe(root, &options, &report, &err) == GPUSNAP_OK)
		return true;
	(void)fprintf(stderr, "%s: skipped\n", err.message);
	return false;
}

int main(void)
{
	const TTest *const tests[] = {
		each_completion_is_retried_or_reported,
		memory_is_not_used_again_while_requests_may_be_under_way,
	};
	int result = 77;

	tempdir_make(root, "/dev/shm");
	if (has_uring())
		result = RUN_SUITE("nth_completion", tests);
	tempdir_remove(root);
	return result;
}
