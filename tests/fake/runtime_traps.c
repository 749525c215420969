/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runtimes are known to do, and what the device source makes of it. The kind is the argument:
 * the ways round are HIP's; CUDA has none of them, and answers an error.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include <gpusnap/registry.h>
#include <gpusnap/snapshot.h>

#include "formats/base/bytes.h"
#include "tests/device/fixture.h"
#include "tests/fake/fake_control.h"
#include "tests/support/live_state.h"
#include "tests/support/tempdir.h"

static const char *kind;
static const struct fake_gpu *gpu;
static char scratch[PATH_MAX];

static bool is_hip(void)
{
	return strcmp(kind, "hip") == 0;
}

static struct fixture open_index(uint32_t index)
{
	char name[32];

	(void)snprintf(name, sizeof name, "%s:%u", kind, index);
	return fixture_open(name);
}

START_TEST(a_large_handle_that_fails_is_made_of_pieces)
{
	const struct fake_knobs knobs = {.largest_handle = 2 << 20};
	const struct fake_knobs short_of_memory = {.largest_handle = 2 << 20, .memory = 6 << 20};
	struct fixture f = open_index(0);
	uint64_t bytes = (8 << 20) + f.granule;
	gpusnap_address at = reserve(&f, bytes / f.granule);
	gpusnap_error err;

	gpu->set(&knobs);
	if (is_hip()) {
		ck_ok(f.ops->map(f.context, at, bytes, 0, &err));
		ck_assert_uint_eq(gpu->counts().handles, 5);
		ck_device_filled(&f, at, 0, bytes);
		ck_ok(f.ops->unmap(f.context, at, bytes, &err));
	}
	gpu->set(is_hip() ? &short_of_memory : &knobs);
	ck_fails(f.ops->map(f.context, at, bytes, 0, &err),
		is_hip() ? GPUSNAP_E_DEVICE : GPUSNAP_E_DEVICE, "mapping 8454144 bytes of memory");
	ck_assert_uint_eq(gpu->counts().handles, 0);
	ck_assert_uint_eq(gpu->counts().maps, 0);
	gpu->set(NULL);
	ck_ok(f.ops->map(f.context, at, bytes, 0, &err));
	ck_assert_uint_eq(gpu->counts().handles, 1);
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

START_TEST(a_large_registration_that_fails_is_made_of_pieces)
{
	const struct fake_knobs knobs = {.largest_registration = 64 << 20};
	uint64_t bytes = (130 << 20) + 5;
	struct fixture f = open_index(0);
	gpusnap_address at = device_memory(&f, bytes);
	gpusnap_error err;
	void *memory = NULL;

	gpu->set(&knobs);
	if (is_hip()) {
		ck_ok(f.ops->pinned_alloc(f.context, bytes, &memory, &err));
		ck_assert_uint_eq(gpu->counts().registrations, 3);
		memset(memory, 0x5a, bytes);
		put(&f, at, memory, bytes);
		ck_device_filled(&f, at, 0x5a, bytes);
		ck_assert_uint_eq(gpu->counts().loose_copies, 0);
		f.ops->pinned_free(f.context, memory, bytes);
	} else {
		ck_fails(f.ops->pinned_alloc(f.context, bytes, &memory, &err), GPUSNAP_E_NOMEM,
			"locking 136380416 bytes of host memory");
		ck_assert_ptr_null(memory);
	}
	ck_assert_uint_eq(gpu->counts().registrations, 0);
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

/* A mapping of a file, of random bytes; private, as loaders map shards. */
static uint8_t *map_file(uint64_t bytes, const uint8_t *content)
{
	char path[PATH_MAX];
	uint8_t *memory;
	int fd;

	tempdir_join(path, scratch, "file");
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, content, bytes), (ssize_t)bytes);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	(void)close(fd);
	return memory;
}

/* Longer than what is staged at a time and has its turn at once. */
START_TEST(pages_of_files_are_never_handed_to_hip)
{
	uint64_t bytes = (21 << 20) + 77;
	struct fixture f = open_index(0);
	gpusnap_address at = device_memory(&f, bytes);
	uint8_t *content = host_memory(bytes);
	uint8_t *file;
	uint64_t seed = 5;

	random_fill(&seed, content, bytes);
	file = map_file(bytes, content);
	put(&f, at, file, bytes);
	ck_device_holds(&f, at, content, bytes);
	memset(file, 0, bytes);
	get(&f, file, at, bytes);
	ck_same(file, content, bytes);
	ck_assert_uint_eq(gpu->counts().file_pages, 0);
	if (is_hip())
		ck_assert_uint_eq(gpu->counts().loose_copies, 0);
	else
		ck_assert_uint_gt(gpu->counts().loose_copies, 0);
	(void)munmap(file, bytes);
	free(content);
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

/* Staged as long as it is not known whole, and where it begins inside what is known. */
START_TEST(a_copy_half_of_registered_memory_is_split)
{
	uint64_t half = 1 << 20;
	struct fixture f = open_index(0);
	gpusnap_address at = device_memory(&f, 3 * half);
	uint8_t *content = host_memory(2 * half);
	uint64_t seed = 6;
	gpusnap_error err;
	void *pinned;
	uint8_t *loose;

	random_fill(&seed, content, 2 * half);
	ck_ok(f.ops->pinned_alloc(f.context, half, &pinned, &err));
	/* The page behind the pinned memory, which may be anybody's, is taken for the test. */
	loose = mmap((char *)pinned + half, half, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (loose == (uint8_t *)pinned + half) {
		memcpy(pinned, content, 2 * half);
		put(&f, at, pinned, 2 * half);
		ck_device_holds(&f, at, content, 2 * half);
		if (is_hip())
			ck_assert_uint_eq(gpu->counts().loose_copies, 0);
		(void)munmap(loose, half);
	}
	f.ops->pinned_free(f.context, pinned, half);
	free(content);
	fixture_close(&f);
}
END_TEST

static void copy_odd_rows(struct fixture *f, enum gsn_copy_direction direction, uint64_t dst,
	uint64_t src, uint64_t stride)
{
	const struct gsn_strided_copy copy = {.dst = dst,
		.src = src,
		.row_bytes = 7,
		.rows = 90,
		.dst_stride = stride,
		.src_stride = stride};
	struct gsn_stream *stream = new_stream(f);
	gpusnap_error err;

	ck_ok(f->ops->copy_strided(stream, direction, &copy, &err));
	ck_ok(f->ops->stream_sync(stream, &err));
	f->ops->stream_destroy(stream);
}

START_TEST(no_strided_copy_of_hip_has_an_odd_pitch)
{
	struct fixture f = open_index(0);
	gpusnap_address at = device_memory(&f, 4096);
	gpusnap_error err;
	void *pinned;

	ck_ok(f.ops->pinned_alloc(f.context, 4096, &pinned, &err));
	for (uint64_t stride = 7; stride < 16; stride++) {
		copy_odd_rows(&f, GSN_HOST_TO_DEVICE, at, gsn_host_address(pinned), stride);
		copy_odd_rows(&f, GSN_DEVICE_TO_HOST, gsn_host_address(pinned), at, stride);
		copy_odd_rows(&f, GSN_DEVICE_TO_DEVICE, at + 2048, at, stride);
	}
	/* Strides of 8 and 12 are fit for it. */
	ck_assert_uint_eq(gpu->counts().strided, is_hip() ? 6 : 27);
	ck_assert_uint_eq(gpu->counts().odd_strided, is_hip() ? 0 : 21);
	f.ops->pinned_free(f.context, pinned, 4096);
	fixture_close(&f);
}
END_TEST

START_TEST(memory_that_does_not_come_free_is_not_claimed)
{
	const struct fake_knobs knobs = {.keeps_freed = true};
	struct fixture f = open_index(0);
	gpusnap_offload_report report;
	struct live_state state;
	uint64_t seed = 3;
	gpusnap_error err;

	live_open(&state, f.device);
	(void)live_region(&state, "weights", 64 * f.granule, GPUSNAP_POLICY_KEEP, &seed);
	live_remember(&state);
	gpu->set(&knobs);
	ck_ok(gpusnap_offload(state.registry, NULL, &report, &err));
	ck_assert_uint_eq(report.bytes, 64 * f.granule);
	ck_assert_uint_eq(report.freed_bytes, 0);
	ck_ok(gpusnap_resume(state.registry, NULL, NULL, &err));
	ck_assert(live_equals(&state, state.registry));
	gpu->set(NULL);
	ck_ok(gpusnap_offload(state.registry, NULL, &report, &err));
	ck_assert_uint_eq(report.freed_bytes, 64 * f.granule);
	live_close(&state);
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

/* Three segments, which threads lock at the same time. */
START_TEST(an_arena_that_does_not_lock_leaves_everything_resident)
{
	struct fake_knobs knobs = {.fail_name = "gpuHostRegister"};
	struct fixture f = open_index(0);
	struct live_state state;
	uint64_t seed = 5;
	bool failed = true;
	gpusnap_error err;

	live_open(&state, f.device);
	(void)live_region(&state, "weights", 70 << 20, GPUSNAP_POLICY_KEEP, &seed);
	live_remember(&state);
	for (knobs.fail_in = 1; failed; knobs.fail_in++) {
		gpu->set(&knobs);
		failed = gpusnap_offload(state.registry, NULL, NULL, &err) != GPUSNAP_OK;
		gpu->set(NULL);
		ck_assert_uint_lt(knobs.fail_in, 8);
		if (failed)
			ck_assert_uint_gt(strlen(err.message), 10);
		else
			ck_ok(gpusnap_resume(state.registry, NULL, NULL, &err));
		ck_assert(live_equals(&state, state.registry));
		ck_assert(failed || knobs.fail_in > 1);
	}
	live_close(&state);
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

START_TEST(a_resume_that_finds_no_memory_is_undone_and_works_later)
{
	struct fake_knobs knobs = {.memory = 256 << 20};
	struct fixture f = open_index(0);
	struct live_state state;
	uint64_t seed = 4;
	gpusnap_error err;

	live_open(&state, f.device);
	for (int i = 0; i < 3; i++)
		(void)live_region(&state, "weights", 8 << 20, GPUSNAP_POLICY_KEEP, &seed);
	live_remember(&state);
	ck_ok(gpusnap_offload(state.registry, NULL, NULL, &err));
	/* Another allocation leaves room for two of the three regions. */
	knobs.occupied = knobs.memory - (20 << 20);
	gpu->set(&knobs);
	ck_fails(gpusnap_resume(state.registry, NULL, NULL, &err), GPUSNAP_E_NOMEM, "memory");
	ck_assert_uint_eq(gpu->counts().maps, 0);
	ck_assert_uint_eq(gpu->counts().handles, 0);
	gpu->set(NULL);
	ck_ok(gpusnap_resume(state.registry, NULL, NULL, &err));
	ck_assert(live_equals(&state, state.registry));
	live_close(&state);
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

/* Also behind the maps of a retry in pieces, whose failures nobody has been told. */
START_TEST(an_old_runtime_is_spoken_to_in_its_terms)
{
	const struct fake_knobs knobs = {.old_runtime = true, .no_host_functions = true};
	uint8_t leaf[1000];
	gpusnap_digest digest;
	struct gsn_leaf_range range = {.bytes = sizeof leaf, .out = &digest};
	struct fixture f;
	gpusnap_error err;

	gpu->set(&knobs);
	f = open_index(0);
	range.address = device_memory(&f, sizeof leaf);
	memset(leaf, 9, sizeof leaf);
	put(&f, range.address, leaf, sizeof leaf);
	ck_ok(gsn_device_digest_sync(f.device, &range, 1, &err));
	ck_assert(gpusnap_digest_equal(digest, gpusnap_digest_of(leaf, sizeof leaf)));
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

START_TEST(devices_are_what_they_are_called_whatever_their_order)
{
	const struct fake_knobs knobs = {.devices = 3, .permuted = true};
	gpusnap_device_properties before, after;
	struct fixture f;
	gpusnap_error err;

	gpu->set(&knobs);
	f = open_index(0);
	ck_ok(gpusnap_device_query(f.device, &before, &err));
	ck_assert_str_eq(before.description, "stand-in 2");
	for (uint32_t i = 1; i < 3; i++) {
		struct fixture other = open_index(i);
		gpusnap_device_properties p;

		(void)device_memory(&other, 10 * other.granule - 1);
		ck_ok(gpusnap_device_query(other.device, &p, &err));
		ck_assert_uint_eq(p.description[strlen(p.description) - 1], '2' - i);
		ck_assert_uint_eq(p.memory_bytes - p.free_bytes, 10 * other.granule);
		ck_ok(gpusnap_device_query(f.device, &after, &err));
		ck_assert_uint_eq(after.free_bytes, before.free_bytes);
		fixture_close(&other);
	}
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

START_TEST(work_that_fails_in_its_turn_is_answered_by_the_wait)
{
	const struct fake_knobs knobs = {.break_in = 3};
	struct fixture f = open_index(0);
	gpusnap_address at = device_memory(&f, 4096);
	struct gsn_stream *stream = new_stream(&f);
	gpusnap_digest digest;
	const struct gsn_leaf_range range = {at, 100, &digest};
	gpusnap_error err;

	gpu->set(&knobs);
	for (int i = 0; i < 4; i++)
		ck_ok(f.ops->fill(stream, at, (uint8_t)(i + 1), 4096, &err));
	ck_ok(f.ops->digest(stream, &range, 1, &err));
	ck_fails(f.ops->stream_sync(stream, &err), GPUSNAP_E_DEVICE, "waiting for a stream's work");
	ck_device_filled(&f, at, 2, 4096);
	ck_ok(f.ops->stream_sync(stream, &err));
	f.ops->stream_destroy(stream);
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

START_TEST(one_wrong_bit_of_a_copy_does_not_pass)
{
	struct fixture f = open_index(0);
	struct live_state state;
	uint64_t seed = 8;
	gpusnap_error err;

	live_open(&state, f.device);
	(void)live_region(&state, "weights", 4 * f.granule, GPUSNAP_POLICY_KEEP, &seed);
	live_remember(&state);
	for (uint32_t n = 1; n < 12; n++) {
		const struct fake_knobs knobs = {.corrupt_in = n, .delay_us = n % 3 * 50};

		ck_ok(gpusnap_offload(state.registry, NULL, NULL, &err));
		gpu->set(&knobs);
		if (gpusnap_resume(state.registry, NULL, NULL, &err)) {
			gpu->set(NULL);
			ck_ok(gpusnap_resume(state.registry, NULL, NULL, &err));
		}
		gpu->set(NULL);
		ck_assert(live_equals(&state, state.registry));
	}
	live_close(&state);
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

START_TEST(an_older_error_of_the_application_is_not_a_launch_s)
{
	struct fixture f = open_index(0);
	gpusnap_address at = device_memory(&f, 4096);
	struct gsn_stream *stream = new_stream(&f);
	const struct gsn_moe_localise localise = {
		.pairs = 4, .local = 2, .ids = at, .out = at + 64};
	gpusnap_digest digest;
	const struct gsn_leaf_range range = {at, 100, &digest};
	gpusnap_error err;

	gpu->fail_elsewhere();
	ck_ok(f.ops->digest(stream, &range, 1, &err));
	gpu->fail_elsewhere();
	ck_ok(f.ops->moe_localise(stream, &localise, &err));
	ck_ok(f.ops->stream_sync(stream, &err));
	f.ops->stream_destroy(stream);
	fixture_close(&f);
	ck_nothing_left(gpu);
}
END_TEST

START_TEST(no_driver_is_an_answer)
{
	const struct fake_knobs knobs = {.no_driver = true};
	gpusnap_device *device = NULL;
	char name[32];
	gpusnap_error err;

	(void)snprintf(name, sizeof name, "%s:0", kind);
	gpu->set(&knobs);
	ck_fails(gpusnap_device_open(name, &device, &err), GPUSNAP_E_NODEV, name);
	ck_assert_ptr_null(device);
	gpu->set(NULL);
	(void)snprintf(name, sizeof name, "%s:2", kind);
	ck_fails(gpusnap_device_open(name, &device, &err), GPUSNAP_E_NODEV, "has 2 '");
	ck_nothing_left(gpu);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
		a_large_handle_that_fails_is_made_of_pieces,
		a_large_registration_that_fails_is_made_of_pieces,
		pages_of_files_are_never_handed_to_hip,
		a_copy_half_of_registered_memory_is_split,
		no_strided_copy_of_hip_has_an_odd_pitch,
		memory_that_does_not_come_free_is_not_claimed,
		an_arena_that_does_not_lock_leaves_everything_resident,
		a_resume_that_finds_no_memory_is_undone_and_works_later,
		an_old_runtime_is_spoken_to_in_its_terms,
		devices_are_what_they_are_called_whatever_their_order,
		work_that_fails_in_its_turn_is_answered_by_the_wait,
		one_wrong_bit_of_a_copy_does_not_pass,
		an_older_error_of_the_application_is_not_a_launch_s,
		no_driver_is_an_answer,
	};
	int status;

	assert(argc == 2);
	kind = argv[1];
	gpu = fake_control(kind);
	tempdir_make(scratch, NULL);
	status = RUN_SUITE("runtime_traps", tests);
	tempdir_remove(scratch);
	return status;
}
