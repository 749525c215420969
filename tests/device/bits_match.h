/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_BITS_MATCH_H
#define GPUSNAP_TEST_BITS_MATCH_H
/* What tests that compare a device's kernels with the host's share: memory given out, comparisons.
 */
#include "formats/base/bytes.h"
#include "kernels/host_moe.h"
#include "tests/device/fixture.h"

enum {
	RANDOM_CASES = 160, /* GPUSNAP_CASES replaces it: a sanitizer takes its time */
	PLACE = 256, /* what is put on the device begins at a multiple of this, plus a shift */
};

static const char *device_name = "host"; /* set by a test's main */

static inline int cases(void)
{
	const char *text = getenv("GPUSNAP_CASES");

	return text ? (int)strtol(text, NULL, 10) : RANDOM_CASES;
}

/* The device, memory that is given out bit by bit, and the host that it is compared with. */
struct bench {
	struct fixture f;
	struct gsn_stream *stream;
	gpusnap_address memory;
	uint64_t bytes, used;
	uint64_t random;
	struct gsn_host_moe host;
};

static inline struct bench open_bench(uint64_t bytes, uint64_t seed)
{
	struct bench b = {.f = fixture_open(device_name), .random = random_seed(seed)};
	gpusnap_error err;

	b.bytes = bytes;
	b.memory = device_memory(&b.f, bytes);
	b.stream = new_stream(&b.f);
	b.host.path = gsn_cpu_path_best();
	ck_ok(gsn_pool_create(2, &b.host.pool, &err));
	return b;
}

static inline void close_bench(struct bench *b)
{
	gsn_pool_destroy(b->host.pool);
	b->f.ops->stream_destroy(b->stream);
	fixture_close(&b->f);
}

static inline uint32_t between(struct bench *b, uint32_t low, uint32_t high)
{
	return low + (uint32_t)random_below(&b->random, high - low + 1);
}

/* Device memory of its own, poisoned: `shift` bytes past a boundary. */
static inline gpusnap_address take(struct bench *b, uint64_t bytes, uint32_t shift)
{
	gpusnap_address at = b->memory + b->used + shift;
	gpusnap_error err;

	b->used += gsn_align_up(bytes + shift + 1, PLACE);
	ck_assert_uint_le(b->used, b->bytes);
	ck_ok(gsn_device_fill_sync(b->f.device, at, 0xff, bytes, &err));
	return at;
}

static inline gpusnap_address upload(
	struct bench *b, const void *data, uint64_t bytes, uint32_t shift)
{
	gpusnap_address at = take(b, bytes, shift);

	put(&b->f, at, data, bytes);
	return at;
}

static inline gpusnap_address new_counters(struct bench *b)
{
	const struct gsn_moe_counters zero = {0};

	return upload(b, &zero, sizeof zero, 0);
}

/* Mostly aligned, because that is the fast path; else any multiple of the element. */
static inline uint32_t some_shift(struct bench *b, uint32_t width)
{
	return random_below(&b->random, 3) ? 0 : width * between(b, 1, 31 / width);
}

static inline void check_words(
	struct bench *b, gpusnap_address at, const void *expected, uint64_t count, const char *what)
{
	const uint8_t *wanted = expected;
	uint8_t *got = host_memory(count * 4);

	get(&b->f, got, at, count * 4);
	for (uint64_t i = 0; i < count; i++) {
		uint32_t a, e;

		memcpy(&a, got + 4 * i, 4);
		memcpy(&e, wanted + 4 * i, 4);
		ck_assert_msg(a == e, "%s, element %" PRIu64 " of %" PRIu64 ": %08x, not %08x",
			what, i, count, a, e);
	}
	free(got);
}

static inline void check_counters(
	struct bench *b, gpusnap_address at, const struct gsn_moe_counters *expected)
{
	struct gsn_moe_counters got;

	get(&b->f, &got, at, sizeof got);
	ck_assert_uint_eq(got.local, expected->local);
	ck_assert_uint_eq(got.remote, expected->remote);
	ck_assert_uint_eq(got.faults, expected->faults);
}

/* Rows shorter than a chunk, than a round of lanes, and longer; a third of them whole chunks. */
static inline uint32_t some_length(struct bench *b)
{
	switch (random_below(&b->random, 5)) {
	case 0:
		return between(b, 1, 8);
	case 1:
		return between(b, 9, 70);
	case 2:
		return between(b, 71, 700);
	default:
		return 16 * between(b, 1, 40);
	}
}

#endif
