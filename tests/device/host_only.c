/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host device does beyond the common contract: failures that leave it usable, refusals
 * that a GPU driver need not make, and use by several threads at once.
 */
#include <pthread.h>

#include "tests/device/fixture.h"

/* One granule that is reserved and one, after it, that is mapped as well. */
static gpusnap_address half_mapped(struct fixture *f)
{
	gpusnap_address at = reserve(f, 2);

	map(f, at + f->granule, 1);
	return at;
}

START_TEST(a_failure_surfaces_at_sync_and_stops_the_work_behind_it)
{
	struct fixture f = fixture_open("host");
	gpusnap_address at = half_mapped(&f);
	gpusnap_address good = at + f.granule;
	struct gsn_stream *stream = new_stream(&f);
	gpusnap_error err;

	ck_ok(f.ops->fill(stream, good, 1, 64, &err));
	ck_ok(f.ops->fill(stream, at, 2, 64, &err));
	ck_ok(f.ops->fill(stream, good, 3, 64, &err));
	ck_fails(f.ops->stream_sync(stream, &err), GPUSNAP_E_DEVICE, "reserved but not mapped");
	ck_device_filled(&f, good, 1, 64);
	/* Answered once; the stream works again. */
	ck_ok(f.ops->stream_sync(stream, &err));
	ck_ok(f.ops->fill(stream, good, 4, 64, &err));
	ck_ok(f.ops->stream_sync(stream, &err));
	ck_device_filled(&f, good, 4, 64);
	ck_ok(f.ops->fill(stream, at, 5, 64, NULL));
	ck_assert_int_eq(f.ops->stream_sync(stream, NULL), GPUSNAP_E_DEVICE);
	f.ops->stream_destroy(stream);
	fixture_close(&f);
}
END_TEST

START_TEST(every_kind_of_work_fails_on_memory_that_is_not_mapped)
{
	struct fixture f = fixture_open("host");
	gpusnap_address at = half_mapped(&f);
	gpusnap_address good = at + f.granule;
	gpusnap_digest digests[2];
	const struct gsn_leaf_range range = {good - 1, 100, digests};
	struct gsn_strided_copy copy = {
		.dst = good - 10, .row_bytes = 4, .rows = 5, .dst_stride = 5, .src_stride = 5};
	struct gsn_stream *stream = new_stream(&f);
	uint8_t host[64] = {0};
	gpusnap_error err;

	ck_fails(gsn_device_copy_sync(
			 f.device, GSN_HOST_TO_DEVICE, good - 1, gsn_host_address(host), 64, &err),
		GPUSNAP_E_DEVICE, "write of 64 bytes");
	ck_fails(gsn_device_copy_sync(
			 f.device, GSN_DEVICE_TO_HOST, gsn_host_address(host), good - 64, 64, &err),
		GPUSNAP_E_DEVICE, "read of 64 bytes");
	ck_fails(gsn_device_digest_sync(f.device, &range, 1, &err), GPUSNAP_E_DEVICE,
		"digest of 100 bytes");
	copy.src = gsn_host_address(host);
	ck_ok(f.ops->copy_strided(stream, GSN_HOST_TO_DEVICE, &copy, &err));
	ck_fails(f.ops->stream_sync(stream, &err), GPUSNAP_E_DEVICE, "write of 24 bytes");
	ck_device_filled(&f, good, 0, 64);
	f.ops->stream_destroy(stream);
	fixture_close(&f);
}
END_TEST

START_TEST(an_event_answers_a_failure_before_it_and_not_one_behind_it)
{
	struct fixture f = fixture_open("host");
	gpusnap_address at = half_mapped(&f);
	gpusnap_address good = at + f.granule;
	struct gsn_stream *stream = new_stream(&f);
	struct gsn_stream *other = new_stream(&f);
	struct gsn_event *before = new_event(&f);
	struct gsn_event *after = new_event(&f);
	gpusnap_error err;

	ck_ok(f.ops->fill(stream, good, 1, 64, &err));
	ck_ok(f.ops->event_record(before, stream, &err));
	ck_ok(f.ops->fill(stream, at, 2, 64, &err));
	ck_ok(f.ops->event_record(after, stream, &err));
	ck_fails(f.ops->event_sync(after, &err), GPUSNAP_E_DEVICE, "not mapped");
	ck_ok(f.ops->event_sync(before, &err));
	/* Whoever waits for the failed work fails too, instead of reading what is not there. */
	ck_ok(f.ops->stream_wait(other, after, &err));
	ck_ok(f.ops->fill(other, good, 9, 64, &err));
	ck_fails(f.ops->stream_sync(other, &err), GPUSNAP_E_DEVICE, "not mapped");
	ck_fails(f.ops->stream_sync(stream, &err), GPUSNAP_E_DEVICE, "not mapped");
	ck_ok(f.ops->event_sync(after, &err));
	ck_device_filled(&f, good, 1, 64);
	f.ops->event_destroy(before);
	f.ops->event_destroy(after);
	f.ops->stream_destroy(other);
	f.ops->stream_destroy(stream);
	fixture_close(&f);
}
END_TEST

START_TEST(copies_onto_themselves_are_refused)
{
	struct fixture f = fixture_open("host");
	gpusnap_address at = device_memory(&f, 4096);
	struct gsn_strided_copy copy = {.dst = at + 8,
		.src = at,
		.row_bytes = 8,
		.rows = 4,
		.dst_stride = 16,
		.src_stride = 16};
	struct gsn_stream *stream = new_stream(&f);
	gpusnap_error err;

	ck_fails(f.ops->copy(stream, GSN_DEVICE_TO_DEVICE, at + 63, at, 64, &err),
		GPUSNAP_E_INVALID, "overlap");
	ck_ok(f.ops->copy(stream, GSN_DEVICE_TO_DEVICE, at + 64, at, 64, &err));
	ck_fails(f.ops->copy_strided(stream, GSN_DEVICE_TO_DEVICE, &copy, &err), GPUSNAP_E_INVALID,
		"overlap");
	ck_ok(f.ops->stream_sync(stream, &err));
	f.ops->stream_destroy(stream);
	fixture_close(&f);
}
END_TEST

START_TEST(several_contexts_do_not_share_state)
{
	struct fixture a = fixture_open("host");
	struct fixture b = fixture_open("host");
	gpusnap_address at = reserve(&a, 1);
	gpusnap_error err;

	ck_fails(b.ops->map(b.context, at, b.granule, 0, &err), GPUSNAP_E_INVALID,
		"not inside one reserved range");
	map(&a, at, 1);
	fixture_close(&b);
	ck_device_filled(&a, at, 0, a.granule);
	fixture_close(&a);
}
END_TEST

START_TEST(a_map_of_more_memory_than_there_is_is_refused)
{
	struct fixture f = fixture_open("host");
	gpusnap_device_properties properties;
	gpusnap_address at;
	uint64_t granules;
	gpusnap_error err;

	ck_ok(gpusnap_device_query(f.device, &properties, &err));
	granules = properties.memory_bytes / f.granule + 1;
	at = reserve(&f, granules);
	ck_fails(f.ops->map(f.context, at, granules * f.granule, 0, &err), GPUSNAP_E_NOMEM,
		"bytes of memory are available");
	map(&f, at, 1);
	release(&f, at, granules);
	fixture_close(&f);
}
END_TEST

/* How much more is free once `bytes` of memory in use are unmapped. */
static int64_t measure_unmap(struct fixture *f, uint64_t bytes)
{
	gpusnap_address at = reserve(f, bytes / f->granule);
	gpusnap_device_properties full;
	gpusnap_device_properties empty;
	gpusnap_error err;

	map(f, at, bytes / f->granule);
	ck_ok(gsn_device_fill_sync(f->device, at, 1, bytes, &err));
	ck_ok(gpusnap_device_query(f->device, &full, &err));
	unmap(f, at, bytes / f->granule);
	ck_ok(gpusnap_device_query(f->device, &empty, &err));
	release(f, at, bytes / f->granule);
	return (int64_t)(empty.free_bytes - full.free_bytes);
}

START_TEST(memory_that_is_given_back_is_measured)
{
	struct fixture f = fixture_open("host");
	int64_t bytes = 256 << 20;
	int64_t freed = 0;

	/* Others take memory at the same time: one of some tries must come near. */
	for (int i = 0; i < 10 && freed < bytes * 9 / 10; i++)
		freed = measure_unmap(&f, (uint64_t)bytes);
	ck_assert_int_ge(freed, bytes * 9 / 10);
	fixture_close(&f);
}
END_TEST

enum { THREADS = 4, ROUNDS = 15 };

#define PART (UINT64_C(3) << 20)

struct worker {
	struct fixture *f;
	uint8_t number;
	pthread_t thread;
};

/* All leaves are the digest of one leaf full of the worker's number. */
static void check_digests(const gpusnap_digest *got, uint8_t number)
{
	uint8_t leaf[GPUSNAP_LEAF_BYTES];
	gpusnap_digest expected;

	memset(leaf, number, sizeof leaf);
	expected = gpusnap_digest_of(leaf, sizeof leaf);
	for (size_t i = 0; i < PART / GPUSNAP_LEAF_BYTES; i++)
		assert(gpusnap_digest_equal(got[i], expected));
}

/*
 * Map, fill, copy, digest, unmap, with a stream of one's own; large enough to use the pool. Check's
 * own assertions are for the test's thread only.
 */
static void *work(void *argument)
{
	struct worker *worker = argument;
	const struct gsn_device_ops *ops = worker->f->ops;
	void *context = worker->f->context;
	gpusnap_digest got[PART / GPUSNAP_LEAF_BYTES];
	struct gsn_leaf_range range = {.bytes = PART, .out = got};
	struct gsn_stream *stream;
	gpusnap_address at;

	assert(ops->reserve(context, 2 * PART, &at, NULL) == GPUSNAP_OK);
	assert(ops->stream_create(context, &stream, NULL) == GPUSNAP_OK);
	range.address = at + PART;
	for (int i = 0; i < ROUNDS; i++) {
		assert(ops->map(context, at, PART, 0, NULL) == GPUSNAP_OK);
		assert(ops->map(context, at + PART, PART, 0, NULL) == GPUSNAP_OK);
		assert(ops->fill(stream, at, worker->number, PART, NULL) == GPUSNAP_OK);
		assert(ops->copy(stream, GSN_DEVICE_TO_DEVICE, at + PART, at, PART, NULL) ==
			GPUSNAP_OK);
		assert(ops->digest(stream, &range, 1, NULL) == GPUSNAP_OK);
		assert(ops->stream_sync(stream, NULL) == GPUSNAP_OK);
		check_digests(got, worker->number);
		assert(ops->unmap(context, at + PART, PART, NULL) == GPUSNAP_OK);
		assert(ops->unmap(context, at, PART, NULL) == GPUSNAP_OK);
	}
	ops->stream_destroy(stream);
	ops->release(context, at, 2 * PART);
	return NULL;
}

START_TEST(several_threads_use_one_device)
{
	struct fixture f = fixture_open("host");
	struct worker workers[THREADS];

	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.f = &f, .number = (uint8_t)(i + 1)};
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_failure_surfaces_at_sync_and_stops_the_work_behind_it,
		every_kind_of_work_fails_on_memory_that_is_not_mapped,
		an_event_answers_a_failure_before_it_and_not_one_behind_it,
		copies_onto_themselves_are_refused,
		several_contexts_do_not_share_state,
		a_map_of_more_memory_than_there_is_is_refused,
		memory_that_is_given_back_is_measured,
		several_threads_use_one_device,
	};

	return RUN_SUITE("host_only", tests);
}
