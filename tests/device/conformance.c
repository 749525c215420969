/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every device kind must do, through its table only. The device's name is the argument,
 * "host" by default; a device that is not there is a skip.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "formats/base/bytes.h"
#include "kernels/pages.h"
#include "tests/device/fixture.h"

static const char *device_name = "host";

static struct fixture open_device(void)
{
	return fixture_open(device_name);
}

START_TEST(mapped_memory_is_zero_and_unmapping_loses_it)
{
	struct fixture f = open_device();
	gpusnap_address at = reserve(&f, 5);
	uint64_t bytes = 4 * f.granule;
	gpusnap_error err;

	map(&f, at, 4);
	ck_device_filled(&f, at, 0, bytes);
	ck_ok(gsn_device_fill_sync(f.device, at, 0xa5, bytes, &err));
	ck_device_filled(&f, at, 0xa5, bytes);
	unmap(&f, at, 4);
	map(&f, at, 4);
	ck_device_filled(&f, at, 0, bytes);
	unmap(&f, at, 4);
	release(&f, at, 5);
	fixture_close(&f);
}
END_TEST

START_TEST(mapped_memory_is_filled_with_what_is_asked_for)
{
	struct fixture f = open_device();
	uint64_t bytes = 3 * f.granule;
	gpusnap_address at = reserve(&f, 3);
	gpusnap_error err;

	for (int i = 0; i < 2; i++) {
		ck_ok(f.ops->map(f.context, at, bytes, i ? 0xff : 0xa5, &err));
		ck_device_filled(&f, at, i ? 0xff : 0xa5, bytes);
		unmap(&f, at, 3);
	}
	fixture_close(&f);
}
END_TEST

START_TEST(unmapping_one_range_leaves_its_neighbours)
{
	struct fixture f = open_device();
	gpusnap_address at = reserve(&f, 6);
	gpusnap_error err;

	for (uint64_t i = 0; i < 6; i += 2) {
		map(&f, at + i * f.granule, 2);
		ck_ok(gsn_device_fill_sync(
			f.device, at + i * f.granule, (uint8_t)(i + 1), 2 * f.granule, &err));
	}
	unmap(&f, at + 2 * f.granule, 2);
	ck_device_filled(&f, at, 1, 2 * f.granule);
	ck_device_filled(&f, at + 4 * f.granule, 5, 2 * f.granule);
	map(&f, at + 3 * f.granule, 1);
	ck_device_filled(&f, at + 3 * f.granule, 0, f.granule);
	ck_device_filled(&f, at + 4 * f.granule, 5, 2 * f.granule);
	release(&f, at, 6);
	fixture_close(&f);
}
END_TEST

START_TEST(ranges_that_do_not_fit_are_refused_and_change_nothing)
{
	struct fixture f = open_device();
	const struct gsn_device_ops *ops = f.ops;
	uint64_t g = f.granule;
	gpusnap_address at = reserve(&f, 4);
	gpusnap_address none = 0;
	gpusnap_error err;

	ck_status(ops->reserve(f.context, 0, &none, &err), GPUSNAP_E_INVALID);
	ck_status(ops->reserve(f.context, g + 1, &none, &err), GPUSNAP_E_INVALID);
	ck_assert_uint_eq(none, 0);
	ck_status(ops->map(f.context, at, 0, 0, &err), GPUSNAP_E_INVALID);
	ck_status(ops->map(f.context, at + 1, g, 0, &err), GPUSNAP_E_INVALID);
	ck_status(ops->map(f.context, at, g - 1, 0, &err), GPUSNAP_E_INVALID);
	ck_status(ops->map(f.context, at, 5 * g, 0, &err), GPUSNAP_E_INVALID);
	ck_status(ops->map(f.context, at - g, g, 0, &err), GPUSNAP_E_INVALID);
	ck_status(ops->map(f.context, 0 - g, 2 * g, 0, &err), GPUSNAP_E_INVALID);
	map(&f, at + g, 2);
	ck_status(ops->map(f.context, at, 2 * g, 0, &err), GPUSNAP_E_STATE);
	ck_status(ops->map(f.context, at + 2 * g, g, 0, &err), GPUSNAP_E_STATE);
	ck_status(ops->unmap(f.context, at, g, &err), GPUSNAP_E_STATE);
	ck_status(ops->unmap(f.context, at + g, g, &err), GPUSNAP_E_STATE);
	ck_status(ops->unmap(f.context, at + g, 3 * g, &err), GPUSNAP_E_STATE);
	unmap(&f, at + g, 2);
	ck_status(ops->unmap(f.context, at + g, 2 * g, &err), GPUSNAP_E_STATE);
	map(&f, at, 4);
	release(&f, at, 4);
	ck_status(ops->map(f.context, at, g, 0, &err), GPUSNAP_E_INVALID);
	fixture_close(&f);
}
END_TEST

/* Whether reading the byte kills a process. Sanitizers' own handlers are put aside. */
static bool touch_faults(gpusnap_address address)
{
	pid_t child = fork();
	int state = 0;

	if (child == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		(void)signal(SIGBUS, SIG_DFL);
		_exit(*(volatile const uint8_t *)(uintptr_t)address == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &state, 0), child);
	return WIFSIGNALED(state) && WTERMSIG(state) == SIGSEGV;
}

START_TEST(a_touch_of_memory_that_is_not_mapped_faults)
{
	struct fixture f = open_device();
	gpusnap_address at = reserve(&f, 3);

	if (f.ops->caps & GSN_CAP_HOST_ADDRESSABLE) {
		ck_assert(touch_faults(at));
		map(&f, at, 1);
		ck_assert(!touch_faults(at));
		ck_assert(!touch_faults(at + f.granule - 1));
		ck_assert(touch_faults(at + f.granule));
		map(&f, at + f.granule, 2);
		unmap(&f, at, 1);
		ck_assert(touch_faults(at));
		ck_assert(touch_faults(at + f.granule - 1));
		ck_assert(!touch_faults(at + f.granule));
		release(&f, at, 3);
		ck_assert(touch_faults(at + f.granule));
	}
	fixture_close(&f);
}
END_TEST

/* Give this process no room for more of a resource; the former limit is the answer. */
static struct rlimit limit_to(int resource, uint64_t bytes)
{
	struct rlimit before;
	struct rlimit limit;

	ck_assert_int_eq(getrlimit((__rlimit_resource_t)resource, &before), 0);
	limit = (struct rlimit){bytes, before.rlim_max};
	ck_assert_int_eq(setrlimit((__rlimit_resource_t)resource, &limit), 0);
	return before;
}

START_TEST(a_map_that_fails_leaves_nothing_mapped)
{
	struct fixture f = open_device();
	uint64_t bytes = 64 * f.granule;
	gpusnap_address at = reserve(&f, 64);
	gpusnap_error err;

	if (f.ops->caps & GSN_CAP_HOST_ADDRESSABLE) {
		struct rlimit before = limit_to(RLIMIT_DATA, 1);
		gpusnap_status status = f.ops->map(f.context, at, bytes, 0, &err);

		ck_assert_int_eq(setrlimit(RLIMIT_DATA, &before), 0);
		ck_status(status, GPUSNAP_E_NOMEM);
		ck_assert(touch_faults(at));
		ck_assert(touch_faults(at + bytes - 1));
		ck_status(f.ops->unmap(f.context, at, bytes, &err), GPUSNAP_E_STATE);
	}
	map(&f, at, 64);
	ck_device_filled(&f, at, 0, bytes);
	fixture_close(&f);
}
END_TEST

START_TEST(a_reservation_that_is_too_large_is_an_answer)
{
	struct fixture f = open_device();
	gpusnap_address none = 0;
	gpusnap_error err;

	ck_status(f.ops->reserve(f.context, gsn_align_down(INT64_MAX, f.granule), &none, &err),
		GPUSNAP_E_NOMEM);
	ck_assert_uint_eq(none, 0);
	ck_device_filled(&f, device_memory(&f, 100), 0, 100);
	fixture_close(&f);
}
END_TEST

START_TEST(pinned_memory_is_writable_and_zero)
{
	static const uint64_t sizes[] = {1, 4096, 65537, (33u << 20) + 5};
	struct fixture f = open_device();
	gpusnap_error err;
	void *memory = NULL;

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		ck_ok(f.ops->pinned_alloc(f.context, sizes[i], &memory, &err));
		ck_assert_uint_eq((uintptr_t)memory % 4096, 0);
		ck_filled(memory, 0, sizes[i]);
		memset(memory, 0xff, sizes[i]);
		f.ops->pinned_free(f.context, memory, sizes[i]);
	}
	ck_status(f.ops->pinned_alloc(f.context, 0, &memory, &err), GPUSNAP_E_INVALID);
	ck_status(f.ops->pinned_alloc(f.context, INT64_MAX, &memory, &err), GPUSNAP_E_NOMEM);
	f.ops->pinned_free(f.context, NULL, 0);
	fixture_close(&f);
}
END_TEST

enum { PINNERS = 4 };

struct pinner {
	struct fixture *f;
	uint8_t *memory;
	uint64_t bytes;
	gpusnap_status status;
};

static void *run_pinner(void *argument)
{
	struct pinner *p = argument;

	p->status = p->f->ops->pin(p->f->context, p->memory, p->bytes, NULL);
	return NULL;
}

START_TEST(threads_pin_their_parts_of_memory_at_the_same_time)
{
	uint64_t bytes = UINT64_C(5) << 20, seed = 4;
	struct fixture f = open_device();
	uint8_t *memory = gsn_pages_take_staging(PINNERS * bytes);
	uint8_t *data = host_memory(PINNERS * bytes);
	gpusnap_address at = device_memory(&f, PINNERS * bytes);
	struct pinner pinners[PINNERS];
	pthread_t threads[PINNERS];

	ck_assert_ptr_nonnull(memory);
	for (int i = 0; i < PINNERS; i++) {
		pinners[i] = (struct pinner){&f, memory + i * bytes, bytes, GPUSNAP_E_STATE};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_pinner, &pinners[i]), 0);
	}
	for (int i = 0; i < PINNERS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert_int_eq(pinners[i].status, GPUSNAP_OK);
	}
	ck_filled(memory, 0, PINNERS * bytes);
	random_fill(&seed, data, PINNERS * bytes);
	memcpy(memory, data, PINNERS * bytes);
	for (int i = 0; i < PINNERS; i++)
		put(&f, at + i * bytes, memory + i * bytes, bytes);
	ck_device_holds(&f, at, data, PINNERS * bytes);
	for (int i = 0; i < PINNERS; i++)
		f.ops->unpin(f.context, memory + i * bytes, bytes);
	gsn_pages_give_back(memory, PINNERS * bytes);
	free(data);
	fixture_close(&f);
}
END_TEST

static const uint64_t copy_sizes[] = {
	0, 1, 2, 3, 7, 15, 16, 63, 64, 65, 4095, 4096, 65535, 65536, 65537, (1u << 20) + 1};
static const uint64_t copy_offsets[] = {0, 1, 63};

enum {
	COPY_SIZES = sizeof copy_sizes / sizeof copy_sizes[0],
	COPY_OFFSETS = sizeof copy_offsets / sizeof copy_offsets[0]
};

#define GUARD UINT64_C(64)

/* Host to device, device to device, device to host: the bytes arrive and their neighbours stay. */
static void round_trip(struct fixture *f, const gpusnap_address at[2], const uint8_t *data,
	uint64_t bytes, const uint64_t offset[2])
{
	uint8_t *expected = host_memory(bytes + 4 * GUARD);
	gpusnap_error err;

	memset(expected, 0xee, bytes + 4 * GUARD);
	for (int i = 0; i < 2; i++)
		ck_ok(gsn_device_fill_sync(f->device, at[i], 0xee, bytes + 4 * GUARD, &err));
	memcpy(expected + GUARD + offset[0], data, bytes);
	put(f, at[0] + GUARD + offset[0], data, bytes);
	ck_device_holds(f, at[0], expected, bytes + 4 * GUARD);
	memset(expected, 0xee, bytes + 4 * GUARD);
	memcpy(expected + GUARD + offset[1], data, bytes);
	ck_ok(gsn_device_copy_sync(f->device, GSN_DEVICE_TO_DEVICE, at[1] + GUARD + offset[1],
		at[0] + GUARD + offset[0], bytes, &err));
	ck_device_holds(f, at[1], expected, bytes + 4 * GUARD);
	ck_device_holds(f, at[1] + GUARD + offset[1], data, bytes);
	free(expected);
}

START_TEST(copies_of_every_size_and_alignment_move_exactly_their_bytes)
{
	struct fixture f = open_device();
	uint64_t most = copy_sizes[COPY_SIZES - 1];
	gpusnap_address at[2] = {
		device_memory(&f, most + 4 * GUARD), device_memory(&f, most + 4 * GUARD)};
	uint8_t *data = host_memory(most);
	uint64_t seed = 7;

	random_fill(&seed, data, most);
	for (int i = 0; i < COPY_SIZES * COPY_OFFSETS * COPY_OFFSETS; i++) {
		const uint64_t offset[2] = {copy_offsets[i / COPY_OFFSETS % COPY_OFFSETS],
			copy_offsets[i % COPY_OFFSETS]};

		round_trip(&f, at, data, copy_sizes[i / COPY_OFFSETS / COPY_OFFSETS], offset);
	}
	free(data);
	fixture_close(&f);
}
END_TEST

START_TEST(a_large_copy_arrives_whole)
{
	struct fixture f = open_device();
	uint64_t bytes = (20u << 20) + 13;
	gpusnap_address at = device_memory(&f, bytes + 1);
	uint8_t *data = host_memory(bytes);
	uint64_t seed = 11;

	random_fill(&seed, data, bytes);
	put(&f, at + 1, data, bytes);
	ck_device_holds(&f, at + 1, data, bytes);
	ck_device_filled(&f, at, 0, 1);
	free(data);
	fixture_close(&f);
}
END_TEST

/* rows, row_bytes, strides. The last ones are larger than what a kind may do in one piece. */
static const struct gsn_strided_copy strided_cases[] = {
	{.rows = 0, .row_bytes = 5, .dst_stride = 5, .src_stride = 5},
	{.rows = 5, .row_bytes = 0, .dst_stride = 5, .src_stride = 5},
	{.rows = 1, .row_bytes = 1000, .dst_stride = 1, .src_stride = 0},
	{.rows = 100, .row_bytes = 1, .dst_stride = 1, .src_stride = 7},
	{.rows = 100, .row_bytes = 2, .dst_stride = 3, .src_stride = 2},
	{.rows = 100, .row_bytes = 3, .dst_stride = 5, .src_stride = 9},
	{.rows = 100, .row_bytes = 4, .dst_stride = 4, .src_stride = 12},
	{.rows = 100, .row_bytes = 8, .dst_stride = 9, .src_stride = 8},
	{.rows = 100, .row_bytes = 16, .dst_stride = 16, .src_stride = 33},
	{.rows = 100, .row_bytes = 32, .dst_stride = 40, .src_stride = 32},
	{.rows = 100, .row_bytes = 64, .dst_stride = 64, .src_stride = 65},
	{.rows = 100, .row_bytes = 100, .dst_stride = 100, .src_stride = 100},
	{.rows = 33, .row_bytes = 4096, .dst_stride = 4100, .src_stride = 8192},
	{.rows = 70000, .row_bytes = 16, .dst_stride = 16, .src_stride = 48},
	{.rows = 5, .row_bytes = 3000001, .dst_stride = 3000002, .src_stride = 3100000},
	{.rows = 600, .row_bytes = 20001, .dst_stride = 20001, .src_stride = 20010},
};

static uint64_t span(uint64_t rows, uint64_t row_bytes, uint64_t stride)
{
	return rows && row_bytes ? (rows - 1) * stride + row_bytes : 0;
}

static void check_strided(struct fixture *f, struct gsn_strided_copy copy)
{
	uint64_t dst_bytes = span(copy.rows, copy.row_bytes, copy.dst_stride) + 2 * GUARD;
	uint64_t src_bytes = span(copy.rows, copy.row_bytes, copy.src_stride) + 1;
	gpusnap_address at = device_memory(f, dst_bytes);
	uint8_t *src = host_memory(src_bytes);
	uint8_t *expected = host_memory(dst_bytes);
	struct gsn_stream *stream = new_stream(f);
	uint64_t seed = copy.row_bytes + 1;
	gpusnap_error err;

	random_fill(&seed, src, src_bytes);
	copy.dst = at + GUARD;
	copy.src = gsn_host_address(src);
	for (uint64_t row = 0; row < copy.rows; row++)
		memcpy(expected + GUARD + row * copy.dst_stride, src + row * copy.src_stride,
			copy.row_bytes);
	ck_ok(f->ops->copy_strided(stream, GSN_HOST_TO_DEVICE, &copy, &err));
	ck_ok(f->ops->stream_sync(stream, &err));
	ck_device_holds(f, at, expected, dst_bytes);
	f->ops->stream_destroy(stream);
	free(expected);
	free(src);
}

START_TEST(strided_copies_move_their_rows_and_leave_the_gaps)
{
	struct fixture f = open_device();

	for (size_t i = 0; i < sizeof strided_cases / sizeof strided_cases[0]; i++)
		check_strided(&f, strided_cases[i]);
	fixture_close(&f);
}
END_TEST

START_TEST(work_that_names_no_memory_is_refused_at_once)
{
	struct fixture f = open_device();
	struct gsn_stream *stream = new_stream(&f);
	gpusnap_address at = device_memory(&f, 4096);
	struct gsn_strided_copy copy = {.dst = at, .rows = 2, .row_bytes = 8, .dst_stride = 8};
	struct gsn_leaf_range range = {.address = at, .bytes = 8};
	uint8_t host[64];
	gpusnap_error err;

	ck_status(f.ops->copy(stream, GSN_HOST_TO_DEVICE, at, 0, 8, &err), GPUSNAP_E_INVALID);
	ck_status(f.ops->copy(stream, GSN_DEVICE_TO_HOST, 0, at, 8, &err), GPUSNAP_E_INVALID);
	ck_status(f.ops->copy(stream, GSN_DEVICE_TO_DEVICE, at, at + 8, UINT64_MAX - 8, &err),
		GPUSNAP_E_INVALID);
	ck_status(f.ops->fill(stream, 0, 1, 8, &err), GPUSNAP_E_INVALID);
	copy.src = gsn_host_address(host);
	copy.src_stride = 7;
	ck_status(f.ops->copy_strided(stream, GSN_HOST_TO_DEVICE, &copy, &err), GPUSNAP_E_INVALID);
	copy.src_stride = UINT64_MAX / 2;
	copy.rows = 3;
	ck_status(f.ops->copy_strided(stream, GSN_HOST_TO_DEVICE, &copy, &err), GPUSNAP_E_INVALID);
	ck_status(f.ops->digest(stream, &range, 1, &err), GPUSNAP_E_INVALID);
	ck_ok(f.ops->stream_sync(stream, &err));
	ck_device_filled(&f, at, 0, 4096);
	f.ops->stream_destroy(stream);
	fixture_close(&f);
}
END_TEST

START_TEST(fill_writes_exactly_its_bytes)
{
	static const uint64_t sizes[] = {0, 1, 15, 64, 4097, 65537, (3u << 20) + 1};
	struct fixture f = open_device();
	gpusnap_address at = device_memory(&f, (UINT64_C(3) << 20) + 4 * GUARD);
	gpusnap_error err;

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		gpusnap_address begin = at + GUARD + i;

		ck_ok(gsn_device_fill_sync(f.device, at, 0x11, sizes[i] + 4 * GUARD, &err));
		ck_ok(gsn_device_fill_sync(f.device, begin, 0x99, sizes[i], &err));
		ck_device_filled(&f, at, 0x11, GUARD + i);
		ck_device_filled(&f, begin, 0x99, sizes[i]);
		ck_device_filled(&f, begin + sizes[i], 0x11, GUARD);
	}
	fixture_close(&f);
}
END_TEST

/* Digest `bytes` at each of the device's offsets in one call and compare with the reference. */
static void ck_digests(struct fixture *f, gpusnap_address at, const uint8_t *data,
	const uint64_t (*ranges)[2], size_t count)
{
	struct gsn_leaf_range *leaf_ranges = calloc(count, sizeof *leaf_ranges);
	gpusnap_error err;

	for (size_t i = 0; i < count; i++) {
		uint64_t leaves = gpusnap_leaf_count(ranges[i][1]);

		leaf_ranges[i] = (struct gsn_leaf_range){at + ranges[i][0], ranges[i][1],
			calloc(leaves + 1, sizeof(gpusnap_digest))};
	}
	ck_ok(gsn_device_digest_sync(f->device, leaf_ranges, count, &err));
	for (size_t i = 0; i < count; i++) {
		uint64_t leaves = gpusnap_leaf_count(ranges[i][1]);

		for (uint64_t leaf = 0; leaf < leaves; leaf++) {
			uint64_t begin = leaf * GPUSNAP_LEAF_BYTES;
			uint64_t bytes = gsn_min(GPUSNAP_LEAF_BYTES, ranges[i][1] - begin);
			gpusnap_digest expected =
				gpusnap_digest_of(data + ranges[i][0] + begin, bytes);

			ck_assert_msg(gpusnap_digest_equal(leaf_ranges[i].out[leaf], expected),
				"range %zu, offset %" PRIu64 ", %" PRIu64 " bytes, leaf %" PRIu64,
				i, ranges[i][0], ranges[i][1], leaf);
		}
		ck_assert_msg(gpusnap_digest_is_zero(leaf_ranges[i].out[leaves]),
			"range %zu: written past its leaves", i);
		free(leaf_ranges[i].out);
	}
	free(leaf_ranges);
}

enum { DIGEST_LENGTHS = 4161, DIGEST_RANGES = 24 };

START_TEST(digests_of_every_length_are_the_reference)
{
	struct fixture f = open_device();
	gpusnap_address at = device_memory(&f, DIGEST_LENGTHS + 64);
	uint8_t *data = host_memory(DIGEST_LENGTHS + 64);
	uint64_t(*ranges)[2] = calloc(DIGEST_LENGTHS, sizeof *ranges);
	uint64_t seed = 3;

	random_fill(&seed, data, DIGEST_LENGTHS + 64);
	put(&f, at, data, DIGEST_LENGTHS + 64);
	for (uint64_t i = 0; i < DIGEST_LENGTHS; i++) {
		ranges[i][0] = i * 7 % 64;
		ranges[i][1] = i;
	}
	ck_digests(&f, at, data, (const uint64_t(*)[2])ranges, DIGEST_LENGTHS);
	free(ranges);
	free(data);
	fixture_close(&f);
}
END_TEST

START_TEST(digests_of_many_ranges_in_one_call_are_the_reference)
{
	static const uint64_t lengths[DIGEST_RANGES / 3] = {0, 1, GPUSNAP_LEAF_BYTES - 1,
		GPUSNAP_LEAF_BYTES, GPUSNAP_LEAF_BYTES + 1, UINT64_C(3) * GPUSNAP_LEAF_BYTES,
		1300003, 0};
	struct fixture f = open_device();
	uint64_t bytes = 2000000;
	gpusnap_address at = device_memory(&f, bytes);
	uint8_t *data = host_memory(bytes);
	uint64_t ranges[DIGEST_RANGES][2];
	uint64_t seed = 5;

	random_fill(&seed, data, bytes);
	put(&f, at, data, bytes);
	for (uint64_t i = 0; i < DIGEST_RANGES; i++) {
		ranges[i][0] = i * 4093;
		ranges[i][1] = lengths[i % (DIGEST_RANGES / 3)];
	}
	ck_digests(&f, at, data, (const uint64_t(*)[2])ranges, DIGEST_RANGES);
	ck_digests(&f, at, data, (const uint64_t(*)[2])ranges, 0);
	free(data);
	fixture_close(&f);
}
END_TEST

/* A kernel may write them there itself, or not, as they are aligned. */
START_TEST(digests_go_to_pinned_memory_of_any_alignment)
{
	static const uint64_t offsets[] = {0, 16, 8, 1};
	enum { LEAVES = 3, BYTES = 2 * GPUSNAP_LEAF_BYTES + 17 };
	struct fixture f = open_device();
	gpusnap_address at = device_memory(&f, BYTES);
	uint8_t *data = host_memory(BYTES);
	uint64_t seed = 9;
	gpusnap_error err;
	void *pinned;

	random_fill(&seed, data, BYTES);
	put(&f, at, data, BYTES);
	ck_ok(f.ops->pinned_alloc(f.context, 4096, &pinned, &err));
	for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
		gpusnap_digest *out = (gpusnap_digest *)((uint8_t *)pinned + offsets[i]);
		const struct gsn_leaf_range range = {at, BYTES, out};

		memset(pinned, 0, 4096);
		ck_ok(gsn_device_digest_sync(f.device, &range, 1, &err));
		for (uint64_t leaf = 0; leaf < LEAVES; leaf++) {
			uint64_t begin = leaf * GPUSNAP_LEAF_BYTES;

			ck_assert(gpusnap_digest_equal(
				out[leaf], gpusnap_digest_of(data + begin,
						   gsn_min(GPUSNAP_LEAF_BYTES, BYTES - begin))));
		}
		ck_filled(pinned, 0, offsets[i]);
		ck_filled((uint8_t *)(out + LEAVES), 0, 64);
	}
	f.ops->pinned_free(f.context, pinned, 4096);
	free(data);
	fixture_close(&f);
}
END_TEST

START_TEST(work_of_a_stream_runs_in_order)
{
	const uint64_t steps = 1000;
	const uint64_t bytes = 5000;
	struct fixture f = open_device();
	struct gsn_stream *stream = new_stream(&f);
	gpusnap_address at = device_memory(&f, (steps + 1) * bytes);
	gpusnap_error err;

	/* Each copy reads what the copy before it wrote; more of them than any queue holds. */
	ck_ok(f.ops->fill(stream, at, 0x5a, bytes, &err));
	for (uint64_t i = 0; i < steps; i++)
		ck_ok(f.ops->copy(stream, GSN_DEVICE_TO_DEVICE, at + (i + 1) * bytes,
			at + i * bytes, bytes, &err));
	ck_ok(f.ops->fill(stream, at, 0, bytes, &err));
	ck_ok(f.ops->stream_sync(stream, &err));
	ck_device_filled(&f, at, 0, bytes);
	ck_device_filled(&f, at + bytes, 0x5a, steps * bytes);
	f.ops->stream_destroy(stream);
	f.ops->stream_destroy(NULL);
	fixture_close(&f);
}
END_TEST

START_TEST(destroying_a_stream_waits_for_its_work)
{
	struct fixture f = open_device();
	uint64_t bytes = 1u << 20;
	gpusnap_address at = device_memory(&f, bytes);
	struct gsn_stream *stream = new_stream(&f);
	gpusnap_error err;

	for (int i = 0; i < 50; i++)
		ck_ok(f.ops->fill(stream, at, (uint8_t)i, bytes, &err));
	f.ops->stream_destroy(stream);
	ck_device_filled(&f, at, 49, bytes);
	fixture_close(&f);
}
END_TEST

START_TEST(a_stream_that_waits_for_an_event_sees_the_work_before_it)
{
	struct fixture f = open_device();
	uint64_t bytes = 1u << 20;
	gpusnap_address at = device_memory(&f, 2 * bytes);
	struct gsn_stream *writer = new_stream(&f);
	struct gsn_stream *reader = new_stream(&f);
	struct gsn_event *written = new_event(&f);
	struct gsn_event *copied = new_event(&f);
	uint8_t *host = host_memory(bytes);
	gpusnap_error err;

	/* Nothing is recorded yet, so nothing is waited for. */
	ck_ok(f.ops->stream_wait(writer, copied, &err));
	ck_ok(f.ops->event_sync(copied, &err));
	for (int i = 1; i <= 30; i++) {
		ck_ok(f.ops->stream_wait(writer, copied, &err));
		ck_ok(f.ops->fill(writer, at, (uint8_t)i, bytes, &err));
		ck_ok(f.ops->event_record(written, writer, &err));
		ck_ok(f.ops->stream_wait(reader, written, &err));
		ck_ok(f.ops->copy(
			reader, GSN_DEVICE_TO_HOST, gsn_host_address(host), at, bytes, &err));
		ck_ok(f.ops->event_record(copied, reader, &err));
		if (i % 10)
			continue;
		ck_ok(f.ops->event_sync(copied, &err));
		ck_filled(host, (uint8_t)i, bytes);
	}
	f.ops->event_destroy(written);
	f.ops->event_destroy(copied);
	f.ops->event_destroy(NULL);
	f.ops->stream_destroy(reader);
	f.ops->stream_destroy(writer);
	free(host);
	fixture_close(&f);
}
END_TEST

START_TEST(an_event_outlives_its_stream_and_may_go_before_its_waiters)
{
	struct fixture f = open_device();
	uint64_t bytes = 4u << 20;
	gpusnap_address at = device_memory(&f, 2 * bytes);
	struct gsn_stream *first = new_stream(&f);
	struct gsn_stream *second = new_stream(&f);
	struct gsn_event *event = new_event(&f);
	gpusnap_error err;

	ck_ok(f.ops->fill(first, at, 7, bytes, &err));
	ck_ok(f.ops->event_record(event, first, &err));
	ck_ok(f.ops->stream_wait(second, event, &err));
	ck_ok(f.ops->copy(second, GSN_DEVICE_TO_DEVICE, at + bytes, at, bytes, &err));
	f.ops->stream_destroy(first);
	ck_ok(f.ops->event_sync(event, &err));
	f.ops->event_destroy(event);
	ck_ok(f.ops->stream_sync(second, &err));
	ck_device_filled(&f, at + bytes, 7, bytes);
	f.ops->stream_destroy(second);
	fixture_close(&f);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
		mapped_memory_is_zero_and_unmapping_loses_it,
		mapped_memory_is_filled_with_what_is_asked_for,
		unmapping_one_range_leaves_its_neighbours,
		ranges_that_do_not_fit_are_refused_and_change_nothing,
		a_touch_of_memory_that_is_not_mapped_faults,
		a_map_that_fails_leaves_nothing_mapped,
		a_reservation_that_is_too_large_is_an_answer,
		pinned_memory_is_writable_and_zero,
		threads_pin_their_parts_of_memory_at_the_same_time,
		copies_of_every_size_and_alignment_move_exactly_their_bytes,
		a_large_copy_arrives_whole,
		strided_copies_move_their_rows_and_leave_the_gaps,
		work_that_names_no_memory_is_refused_at_once,
		fill_writes_exactly_its_bytes,
		digests_of_every_length_are_the_reference,
		digests_of_many_ranges_in_one_call_are_the_reference,
		digests_go_to_pinned_memory_of_any_alignment,
		work_of_a_stream_runs_in_order,
		destroying_a_stream_waits_for_its_work,
		a_stream_that_waits_for_an_event_sees_the_work_before_it,
		an_event_outlives_its_stream_and_may_go_before_its_waiters,
	};

	if (argc > 1)
		device_name = argv[1];
	if (!device_is_there(device_name))
		return 77;
	return RUN_SUITE("conformance", tests);
}
